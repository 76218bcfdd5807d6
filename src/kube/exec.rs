//! Credentials that a program prints (client.authentication.k8s.io v1 and v1beta1).
//!
//! Called by the credentials, on the threads that make requests and behind their lock, so that one
//! program runs at a time. Owns nothing. The program has a deadline and nobody to ask; what it prints
//! is never shown.

use std::process::Command;
use std::time::Duration;

use serde::Deserialize;
use serde_json::json;

use super::kubeconfig::ExecPlugin;
use super::tls::Identity;
use crate::util::cancel::Cancel;
use crate::util::process::{Excess, Ran, RunError, RunLimits, run};

/// What a program may cost.
const LIMITS: RunLimits =
    RunLimits { time: Duration::from_secs(30), output: 1 << 20, complaint: 4096, excess: Excess::Drop };
/// How much of its complaints is told.
const MAX_SHOWN: usize = 300;

/// What a program printed.
pub(super) struct Printed {
    /// A bearer token.
    pub(super) token: Option<String>,
    /// A client certificate with its key.
    pub(super) identity: Option<Identity>,
    /// How long both are good, counted from now; `None` until the server says no.
    pub(super) good_for: Option<Duration>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ExecCredential {
    api_version: String,
    kind: String,
    status: Option<ExecStatus>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct ExecStatus {
    expiration_timestamp: Option<jiff::Timestamp>,
    token: String,
    client_certificate_data: String,
    client_key_data: String,
}

/// Runs the program.
///
/// # Errors
/// It is missing, fails, hangs or prints something else: a sentence without a word of its output.
pub(super) fn ask(plugin: &ExecPlugin, wall_seconds: i64, cancel: &Cancel) -> Result<Printed, String> {
    let mut spec = json!({"interactive": false});
    if let (Some(cluster), Some(spec)) = (&plugin.cluster, spec.as_object_mut()) {
        spec.insert("cluster".to_owned(), cluster.clone());
    }
    let info = json!({"apiVersion": plugin.api_version, "kind": "ExecCredential", "spec": spec}).to_string();
    let mut command = Command::new(&plugin.command);
    let own = plugin.env.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    command.args(&plugin.args).envs(own).env("KUBERNETES_EXEC_INFO", info);
    let name = plugin.command.display();
    match run(&mut command, b"", LIMITS, cancel) {
        Ok(ran) if ran.status.success() => {
            read(&ran.stdout, plugin, wall_seconds).map_err(|why| format!("exec plugin {name}: {why}"))
        }
        Ok(Ran { status, stderr, .. }) => {
            let said: String = stderr.chars().take(MAX_SHOWN).map(|c| if c.is_control() { ' ' } else { c }).collect();
            Err(format!("exec plugin {name} failed ({status}): {said}"))
        }
        Err(RunError::Start(error))
            if error.kind() == std::io::ErrorKind::NotFound && !plugin.install_hint.is_empty() =>
        {
            Err(format!("exec plugin {name}: there is no such program; {}", plugin.install_hint))
        }
        Err(error) => Err(format!("exec plugin {name}: {error}")),
    }
}

fn read(stdout: &[u8], plugin: &ExecPlugin, wall_seconds: i64) -> Result<Printed, String> {
    let printed: ExecCredential = serde_json::from_slice(stdout)
        .map_err(|error| format!("it prints no ExecCredential: {}", super::exchange::without_values(&error)))?;
    if printed.kind != "ExecCredential" || printed.api_version != plugin.api_version {
        let shown = |text: &str| text.chars().take(60).collect::<String>();
        let (kind, version) = (shown(&printed.kind), shown(&printed.api_version));
        return Err(format!("it prints {kind:?} of {version:?}, expected ExecCredential of {:?}", plugin.api_version));
    }
    let Some(status) = printed.status else { return Err("it prints no status".to_owned()) };
    let identity = match (status.client_certificate_data.is_empty(), status.client_key_data.is_empty()) {
        (true, true) => None,
        (false, false) => Some(Identity {
            chain: status.client_certificate_data.into_bytes(),
            key: status.client_key_data.into_bytes(),
        }),
        _ => return Err("it prints only one of certificate and key".to_owned()),
    };
    let token = Some(status.token).filter(|token| !token.is_empty());
    if token.is_none() && identity.is_none() {
        return Err("it prints neither a token nor a certificate".to_owned());
    }
    if token.as_ref().is_some_and(|token| token.contains(|c: char| c.is_control() || !c.is_ascii())) {
        return Err("its token cannot be sent".to_owned());
    }
    let good_for = status.expiration_timestamp.map(|end| {
        let left = end.as_second().saturating_sub(wall_seconds);
        Duration::from_secs(u64::try_from(left).unwrap_or(0))
    });
    Ok(Printed { token, identity, good_for })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn check(output: Value, expect: &str) {
        let plugin = ExecPlugin {
            command: "give".into(),
            args: Vec::new(),
            env: Vec::new(),
            api_version: "client.authentication.k8s.io/v1".to_owned(),
            install_hint: String::new(),
            cluster: None,
        };
        let got = match read(output.to_string().as_bytes(), &plugin, 1000) {
            Ok(Printed { token, identity, good_for }) => {
                format!("token {token:?}, certificate {}, for {good_for:?}", identity.is_some())
            }
            Err(why) => why,
        };
        assert_eq!(got, expect);
    }

    fn status(status: Value) -> Value {
        json!({"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status})
    }

    #[test]
    fn what_a_plugin_prints_is_taken_whole_or_refused() {
        check(status(json!({"token": "t"})), r#"token Some("t"), certificate false, for None"#);
        check(
            status(
                json!({"clientCertificateData": "c", "clientKeyData": "k", "expirationTimestamp": "1970-01-01T00:20:00Z"}),
            ),
            "token None, certificate true, for Some(200s)",
        );
        check(
            status(json!({"token": "t", "expirationTimestamp": "1970-01-01T00:00:01Z"})),
            r#"token Some("t"), certificate false, for Some(0ns)"#,
        );
        check(status(json!({"clientKeyData": "k"})), "it prints only one of certificate and key");
        check(status(json!({})), "it prints neither a token nor a certificate");
        check(status(Value::Null), "it prints no status");
        check(status(json!({"token": "a\nb"})), "its token cannot be sent");
        check(
            json!({"kind": "ExecCredential"}),
            "it prints no ExecCredential: missing field `apiVersion` at line 1 column 25",
        );
        let old = json!({"kind": "ExecCredential", "apiVersion": "client.authentication.k8s.io/v1beta1"});
        check(
            old,
            r#"it prints "ExecCredential" of "client.authentication.k8s.io/v1beta1", expected ExecCredential of "client.authentication.k8s.io/v1""#,
        );
    }
}
