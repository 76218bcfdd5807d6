//! The composition root: builds every channel, starts and joins every thread. Layer L4, on the main thread.

/// Runs the agent until it is told to stop.
///
/// # Errors
/// Always, as long as the agent is not built.
pub fn run(loaded: crate::config::Loaded) -> anyhow::Result<()> {
    for warning in &loaded.warnings {
        log::warn!("{warning}");
    }
    anyhow::bail!("the agent is not built yet")
}
