//! Tables for the checks.
