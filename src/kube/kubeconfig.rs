//! A kubeconfig to what a client needs: which server, whom to trust, who we are.
//!
//! Called by `app` at start with the JSON value of the file; does no I/O. Files that the kubeconfig
//! names are read later and again and again, by the client. Every mistake is named with its path in
//! the file; no text shows a credential. What other programs use and this one cannot do is refused,
//! never passed over.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

use super::dialer::HttpProxy;
use crate::util::json::{self, Misplaced};

/// A file of credentials, or what stands in one.
#[derive(Clone, PartialEq, Eq)]
pub enum Pem {
    /// Written in the kubeconfig itself.
    Inline(Vec<u8>),
    /// In a file of its own, which may change.
    File(PathBuf),
}

impl Pem {
    /// The text, from wherever it is.
    ///
    /// # Errors
    /// The file cannot be read, or is larger than credentials are.
    pub fn read(&self) -> Result<Vec<u8>, String> {
        super::credentials::read(self)
    }
}

impl fmt::Debug for Pem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inline(bytes) => write!(f, "{} bytes inline", bytes.len()),
            Self::File(path) => write!(f, "{}", path.display()),
        }
    }
}

/// What the Authorization header says.
#[derive(Clone, Default, PartialEq, Eq)]
pub enum Auth {
    /// Nothing: a client certificate speaks for us, or nobody does.
    #[default]
    None,
    /// A bearer token.
    Token(String),
    /// A bearer token in a file, which may change.
    TokenFile {
        /// The file.
        path: PathBuf,
        /// What counts until the file can be read.
        first: Option<String>,
    },
    /// User and password, in base64.
    Basic(String),
    /// What a program prints.
    Exec(Box<ExecPlugin>),
}

impl fmt::Debug for Auth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "none",
            Self::Token(_) => "token",
            Self::TokenFile { .. } => "tokenFile",
            Self::Basic(_) => "basic",
            Self::Exec(_) => "exec",
        })
    }
}

/// A program that hands out credentials (client.authentication.k8s.io).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecPlugin {
    /// The program: a path, or a name to look for in PATH.
    pub command: PathBuf,
    /// Its arguments.
    pub args: Vec<String>,
    /// Added to its environment.
    pub env: Vec<(String, String)>,
    /// `client.authentication.k8s.io/v1` or `/v1beta1`.
    pub api_version: String,
    /// What to tell people when the program is missing.
    pub install_hint: String,
    /// What it is told of the cluster, if it wants to know: the `spec.cluster` of its input.
    pub cluster: Option<Value>,
}

/// Who speaks to which server.
#[derive(Clone, Debug, PartialEq)]
pub struct Access {
    /// `https://host:port`, without a path.
    pub(super) origin: String,
    /// Host of `origin`.
    pub(super) host: String,
    /// What stands before every path: empty or `/some/prefix`.
    pub(super) prefix: String,
    /// Whether the server speaks TLS.
    pub(super) is_tls: bool,
    /// The name that the server's certificate is for, where it is not the host's.
    pub(super) tls_server_name: Option<String>,
    /// Accept any server.
    pub(super) insecure: bool,
    /// Whom to trust; the machine's own roots where none is given.
    pub(super) ca: Option<Pem>,
    /// The client's certificate and key.
    pub(super) identity: Option<(Pem, Pem)>,
    /// The Authorization header.
    pub(super) auth: Auth,
    /// Where connections go through.
    pub(super) proxy: Option<HttpProxy>,
    /// Whether answers may come packed.
    pub(super) gzip: bool,
    /// What is accepted but should be known.
    pub warnings: Vec<String>,
}

impl fmt::Debug for HttpProxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.authority)
    }
}

impl Access {
    /// The server's address without path, for people.
    pub fn server(&self) -> &str {
        &self.origin
    }

    /// The client's certificate and key, where the kubeconfig has them.
    pub fn client_certificate(&self) -> Option<(&Pem, &Pem)> {
        self.identity.as_ref().map(|(certificate, key)| (certificate, key))
    }

    /// The server's half of the kubeconfig, for another kubeconfig: what stands below `cluster`.
    pub fn cluster_value(&self) -> Value {
        let mut cluster = serde_json::Map::new();
        let mut put = |key: &str, value: Value| cluster.insert(key.to_owned(), value);
        match &self.ca {
            Some(Pem::File(path)) => drop(put("certificate-authority", Value::String(path.display().to_string()))),
            Some(Pem::Inline(bytes)) => {
                let data = serde_json::to_value(k8s_openapi::ByteString(bytes.clone())).unwrap_or_default();
                put("certificate-authority-data", data);
            }
            None => {}
        }
        if self.insecure {
            put("insecure-skip-tls-verify", Value::Bool(true));
        }
        if let Some(url) = self.proxy.as_ref().and_then(|proxy| proxy.written.clone()) {
            put("proxy-url", Value::String(url));
        }
        put("server", Value::String(format!("{}{}", self.origin, self.prefix)));
        if let Some(name) = &self.tls_server_name {
            put("tls-server-name", Value::String(name.clone()));
        }
        Value::Object(cluster)
    }

    /// The same server with other credentials of one's own: certificate and key in files.
    #[must_use]
    pub fn with_client_certificate(&self, certificate: &Path, key: &Path) -> Self {
        let identity = Some((Pem::File(certificate.to_owned()), Pem::File(key.to_owned())));
        Self { identity, auth: Auth::None, ..self.clone() }
    }
}

/// A kubeconfig that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {at}: {message}", file.display())]
pub struct KubeconfigError {
    /// The file.
    pub file: PathBuf,
    /// The path in the file: `users[0].user.exec.command`.
    pub at: String,
    /// What is wrong, and what would be right.
    pub message: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", default)]
#[derive(Default)]
struct File {
    #[serde(rename = "apiVersion")]
    api_version: Option<String>,
    kind: Option<String>,
    clusters: Option<Vec<NamedCluster>>,
    users: Option<Vec<NamedUser>>,
    contexts: Option<Vec<NamedContext>>,
    current_context: Option<String>,
}

#[derive(Deserialize)]
struct NamedCluster {
    name: String,
    cluster: Option<Cluster>,
}

#[derive(Deserialize)]
struct NamedUser {
    name: String,
    user: Option<User>,
}

#[derive(Deserialize)]
struct NamedContext {
    name: String,
    context: Option<Context>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Context {
    cluster: String,
    user: String,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "kebab-case", default)]
struct Cluster {
    server: Option<String>,
    tls_server_name: Option<String>,
    insecure_skip_tls_verify: Option<bool>,
    certificate_authority: Option<String>,
    certificate_authority_data: Option<k8s_openapi::ByteString>,
    proxy_url: Option<String>,
    disable_compression: Option<bool>,
    extensions: Option<Vec<Extension>>,
}

#[derive(Deserialize)]
struct Extension {
    name: String,
    #[serde(default)]
    extension: Value,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "kebab-case", default)]
struct User {
    client_certificate: Option<String>,
    client_certificate_data: Option<k8s_openapi::ByteString>,
    client_key: Option<String>,
    client_key_data: Option<k8s_openapi::ByteString>,
    token: Option<String>,
    #[serde(rename = "tokenFile")]
    token_file: Option<String>,
    username: Option<String>,
    password: Option<String>,
    #[serde(rename = "as")]
    impersonate: Option<IgnoredAny>,
    as_uid: Option<IgnoredAny>,
    as_groups: Option<IgnoredAny>,
    as_user_extra: Option<IgnoredAny>,
    auth_provider: Option<IgnoredAny>,
    exec: Option<Exec>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Exec {
    command: String,
    args: Option<Vec<String>>,
    env: Option<Vec<EnvVar>>,
    api_version: Option<String>,
    install_hint: Option<String>,
    provide_cluster_info: bool,
    interactive_mode: Option<String>,
}

#[derive(Deserialize)]
struct EnvVar {
    name: String,
    value: String,
}

/// A text, if there is one.
fn some(text: Option<String>) -> Option<String> {
    text.filter(|text| !text.is_empty())
}

fn bytes(data: Option<k8s_openapi::ByteString>) -> Option<Vec<u8>> {
    data.map(|data| data.0).filter(|data| !data.is_empty())
}

/// Reads a kubeconfig: its current context, or `context` if one is named. `value` is the file's content,
/// `file` its path, from whose folder relative paths count.
///
/// # Errors
/// It cannot be used; the first mistake in the way.
pub fn read(value: Value, file: &Path, context: Option<&str>) -> Result<Access, KubeconfigError> {
    let wrong = |at: &str, message: String| KubeconfigError { file: file.to_owned(), at: at.to_owned(), message };
    if !value.is_object() {
        return Err(wrong(
            ".",
            "is no kubeconfig: write apiVersion: v1, kind: Config, clusters, users, contexts".to_owned(),
        ));
    }
    let read: File = json::from_value(&value).map_err(|Misplaced { path: at, error }| {
        let inner = error.to_string();
        // A message of serde quotes the value that it did not like.
        let is_secret = ["token", "password", "data", "env"].iter().any(|word| at.contains(word));
        wrong(&at, if is_secret { "has the wrong type, or is not base64 where it should be".to_owned() } else { inner })
    })?;
    for (at, found, expected) in [("apiVersion", &read.api_version, "v1"), ("kind", &read.kind, "Config")] {
        if let Some(found) = found.as_deref().filter(|found| !found.is_empty() && *found != expected) {
            return Err(wrong(at, format!("is {found:?}, expected {expected}")));
        }
    }
    let name = match context.map(str::to_owned).or(some(read.current_context)) {
        Some(name) => name,
        None => return Err(wrong("current-context", "is not set: name one of contexts".to_owned())),
    };
    let contexts = read.contexts.unwrap_or_default();
    let Some((index, context)) = contexts.into_iter().enumerate().find(|(_, context)| context.name == name) else {
        return Err(wrong("current-context", format!("there is no context {name:?} in contexts")));
    };
    let at = format!("contexts[{index}].context");
    let context = context.context.unwrap_or_default();
    let clusters = read.clusters.unwrap_or_default();
    let found = clusters.into_iter().enumerate().find(|(_, cluster)| cluster.name == context.cluster);
    let Some((cluster_index, cluster)) = found else {
        return Err(wrong(&format!("{at}.cluster"), format!("there is no cluster {:?} in clusters", context.cluster)));
    };
    let users = read.users.unwrap_or_default();
    let found = users.into_iter().enumerate().find(|(_, user)| user.name == context.user);
    let Some((user_index, user)) = found else {
        return Err(wrong(&format!("{at}.user"), format!("there is no user {:?} in users", context.user)));
    };
    let reader = Reader { file, folder: file.parent().unwrap_or(Path::new("")) };
    let mut access =
        reader.cluster(cluster.cluster.unwrap_or_default(), &format!("clusters[{cluster_index}].cluster"))?;
    let info = access.1;
    reader.user(user.user.unwrap_or_default(), &format!("users[{user_index}].user"), &mut access.0, info)?;
    Ok(access.0)
}

struct Reader<'a> {
    file: &'a Path,
    folder: &'a Path,
}

impl Reader<'_> {
    fn wrong(&self, at: &str, field: &str, message: impl Into<String>) -> KubeconfigError {
        KubeconfigError { file: self.file.to_owned(), at: format!("{at}.{field}"), message: message.into() }
    }

    fn path(&self, text: &str) -> PathBuf {
        self.folder.join(text)
    }

    /// Inline data or a file, not both.
    fn pem(
        &self,
        at: &str,
        field: &str,
        path: Option<String>,
        data: Option<Vec<u8>>,
    ) -> Result<Option<Pem>, KubeconfigError> {
        match (path, data) {
            (Some(_), Some(_)) => {
                Err(self.wrong(at, field, format!("stands beside {field}-data: leave one of them out")))
            }
            (Some(path), None) => Ok(Some(Pem::File(self.path(&path)))),
            (None, data) => Ok(data.map(Pem::Inline)),
        }
    }

    /// The server's half, and what a plugin may be told of it.
    fn cluster(&self, cluster: Cluster, at: &str) -> Result<(Access, Value), KubeconfigError> {
        let Some(server) = some(cluster.server) else {
            return Err(self.wrong(at, "server", "is missing: write https://HOST:PORT"));
        };
        let server = if server.contains("://") { server } else { format!("http://{server}") };
        let uri: ureq::http::Uri = server
            .parse()
            .map_err(|_| self.wrong(at, "server", format!("{server:?} is no URL: write https://HOST:PORT")))?;
        let is_tls = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err(self.wrong(at, "server", format!("{server:?} must start with https://"))),
        };
        let Some(authority) = uri.authority().filter(|authority| !authority.host().is_empty()) else {
            return Err(self.wrong(at, "server", format!("{server:?} names no host")));
        };
        if authority.as_str().contains('@') {
            return Err(self.wrong(at, "server", "holds a user name: put it into the user's part"));
        }
        let origin = format!("{}://{authority}", if is_tls { "https" } else { "http" });
        let ca_data = bytes(cluster.certificate_authority_data);
        let ca = self.pem(at, "certificate-authority", some(cluster.certificate_authority), ca_data)?;
        let insecure = cluster.insecure_skip_tls_verify.unwrap_or(false);
        if insecure && ca.is_some() {
            let message = "stands beside a certificate authority: leave one of them out";
            return Err(self.wrong(at, "insecure-skip-tls-verify", message));
        }
        let tls_server_name = some(cluster.tls_server_name);
        if let Some(name) = &tls_server_name {
            super::tls::server_name(name).map_err(|message| self.wrong(at, "tls-server-name", message))?;
        } else if is_tls {
            super::tls::server_name(authority.host()).map_err(|message| self.wrong(at, "server", message))?;
        }
        let mut warnings = Vec::new();
        if insecure {
            warnings.push(format!("{at}.insecure-skip-tls-verify: the API server is not verified, anybody in between can take the node over"));
        }
        if !is_tls {
            warnings.push(format!("{at}.server: plain http, everybody in between reads secrets and can change pods"));
        }
        let proxy = match some(cluster.proxy_url) {
            Some(url) => {
                Some(super::dialer::HttpProxy::parse(&url).map_err(|message| self.wrong(at, "proxy-url", message))?)
            }
            None => super::dialer::HttpProxy::from_environment(&uri),
        };
        let mut extensions = cluster.extensions.unwrap_or_default().into_iter();
        let config = extensions.find(|extension| extension.name == "client.authentication.k8s.io/exec");
        let mut info = serde_json::json!({"server": &server});
        if let Some(map) = info.as_object_mut() {
            let texts = [("tls-server-name", &tls_server_name)]
                .into_iter()
                .filter_map(|(key, text)| Some((key, text.clone()?)));
            map.extend(texts.map(|(key, text)| (key.to_owned(), Value::String(text))));
            if insecure {
                map.insert("insecure-skip-tls-verify".to_owned(), Value::Bool(true));
            }
            if let Some(Pem::Inline(data)) = &ca {
                let data = serde_json::to_value(k8s_openapi::ByteString(data.clone())).unwrap_or_default();
                map.insert("certificate-authority-data".to_owned(), data);
            }
            if let Some(config) = config {
                map.insert("config".to_owned(), config.extension);
            }
        }
        let access = Access {
            host: authority.host().to_owned(),
            prefix: uri.path().trim_end_matches('/').to_owned(),
            origin,
            is_tls,
            tls_server_name,
            insecure,
            ca,
            identity: None,
            auth: Auth::None,
            proxy,
            gzip: !cluster.disable_compression.unwrap_or(false),
            warnings,
        };
        Ok((access, info))
    }

    /// The user's half.
    fn user(&self, user: User, at: &str, access: &mut Access, info: Value) -> Result<(), KubeconfigError> {
        let refused = [
            ("as", user.impersonate.is_some()),
            ("as-uid", user.as_uid.is_some()),
            ("as-groups", user.as_groups.is_some()),
            ("as-user-extra", user.as_user_extra.is_some()),
        ];
        if let Some((field, _)) = refused.into_iter().find(|(_, is_set)| *is_set) {
            return Err(self.wrong(at, field, "a node speaks for itself: acting as another user is not supported"));
        }
        if user.auth_provider.is_some() {
            return Err(self.wrong(at, "auth-provider", "was removed from Kubernetes: use exec"));
        }
        let certificate_data = bytes(user.client_certificate_data);
        let certificate = self.pem(at, "client-certificate", some(user.client_certificate), certificate_data)?;
        let key = self.pem(at, "client-key", some(user.client_key), bytes(user.client_key_data))?;
        access.identity = match (certificate, key) {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (Some(_), None) => return Err(self.wrong(at, "client-key", "is missing beside client-certificate")),
            (None, Some(_)) => return Err(self.wrong(at, "client-certificate", "is missing beside client-key")),
            (None, None) => None,
        };
        let (token, file) = (some(user.token), some(user.token_file));
        let (name, password) = (some(user.username), some(user.password));
        let has_password = name.is_some() || password.is_some();
        if has_password && (token.is_some() || file.is_some()) {
            return Err(self.wrong(at, "username", "stands beside a token: leave one of them out"));
        }
        access.auth = match (token, file) {
            (first, Some(path)) => Auth::TokenFile { path: self.path(&path), first },
            (Some(token), None) => Auth::Token(token),
            (None, None) if has_password => {
                Auth::Basic(super::credentials::basic(&name.unwrap_or_default(), &password.unwrap_or_default()))
            }
            (None, None) => Auth::None,
        };
        let Some(exec) = user.exec else { return Ok(()) };
        let plugin = self.exec(exec, &format!("{at}.exec"), info)?;
        // As upstream: whoever has credentials needs no program for them.
        if access.auth == Auth::None && access.identity.is_none() {
            access.auth = Auth::Exec(Box::new(plugin));
        }
        Ok(())
    }

    fn exec(&self, exec: Exec, at: &str, info: Value) -> Result<ExecPlugin, KubeconfigError> {
        if exec.command.is_empty() {
            return Err(self.wrong(at, "command", "is missing: name the program that prints credentials"));
        }
        let version = exec.api_version.unwrap_or_default();
        match (version.as_str(), exec.interactive_mode.as_deref().unwrap_or_default()) {
            ("client.authentication.k8s.io/v1", "") => {
                return Err(self.wrong(at, "interactiveMode", "is missing: write Never"));
            }
            (
                "client.authentication.k8s.io/v1" | "client.authentication.k8s.io/v1beta1",
                "" | "Never" | "IfAvailable",
            ) => {}
            ("client.authentication.k8s.io/v1" | "client.authentication.k8s.io/v1beta1", "Always") => {
                return Err(self.wrong(
                    at,
                    "interactiveMode",
                    "is Always, but a node has nobody to answer: write Never",
                ));
            }
            ("client.authentication.k8s.io/v1" | "client.authentication.k8s.io/v1beta1", other) => {
                return Err(self.wrong(at, "interactiveMode", format!("is {other:?}, expected Never or IfAvailable")));
            }
            (other, _) => {
                let message = format!(
                    "is {other:?}, expected client.authentication.k8s.io/v1 or client.authentication.k8s.io/v1beta1"
                );
                return Err(self.wrong(at, "apiVersion", message));
            }
        }
        let env = exec.env.unwrap_or_default();
        if let Some(index) = env.iter().position(|var| var.name.is_empty() || var.name.contains(['=', '\0'])) {
            return Err(self.wrong(at, &format!("env[{index}].name"), "is no name of an environment variable"));
        }
        // A name without a slash is looked for in PATH; one with a slash counts from the kubeconfig's folder.
        let command = if exec.command.contains('/') { self.path(&exec.command) } else { PathBuf::from(&exec.command) };
        Ok(ExecPlugin {
            command,
            args: exec.args.unwrap_or_default(),
            env: env.into_iter().map(|var| (var.name, var.value)).collect(),
            api_version: version,
            install_hint: exec.install_hint.unwrap_or_default().chars().filter(|c| !c.is_control()).collect(),
            cluster: exec.provide_cluster_info.then_some(info),
        })
    }
}

#[cfg(test)]
mod tests;
