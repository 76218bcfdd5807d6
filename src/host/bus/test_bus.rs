//! For tests: a private bus (`dbus-daemon`), with somebody on it who answers under systemd's or logind's name.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use nix_of_rustbus::sys::socket::UnixAddr;
use rustbus::connection::{Timeout, ll_conn::force_finish_on_error};
use rustbus::message_builder::{MarshalledMessage, MessageBuilder};
use rustbus::{RpcConn, standard_messages};

use crate::util::thread::{JoinHandle, StackSize, spawn};

/// A bus of the test's own; it ends with this value.
pub(crate) struct TestBus {
    /// Its socket.
    pub(crate) path: PathBuf,
    service: std::sync::Mutex<Option<RpcConn>>,
    daemon: Child,
    _folder: tempfile::TempDir,
}

/// What was asked.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    /// Types of the arguments.
    pub(crate) signature: String,
    /// Those that are text, as far as they come first.
    pub(crate) words: Vec<String>,
}

impl TestBus {
    /// Starts one, with a service that has these names.
    pub(crate) fn start(names: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("bus");
        let config = folder.path().join("config");
        let text = format!(
            "<!DOCTYPE busconfig PUBLIC \"-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN\" \
             \"http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd\"><busconfig><type>session</type>\
             <listen>unix:path={}</listen><auth>EXTERNAL</auth><policy context=\"default\"><allow send_destination=\"*\"/>\
             <allow eavesdrop=\"true\"/><allow own=\"*\"/></policy></busconfig>",
            path.display()
        );
        std::fs::write(&config, text).expect("write");
        let mut daemon = Command::new("dbus-daemon")
            .arg(format!("--config-file={}", config.display()))
            .args(["--nofork", "--nopidfile", "--nosyslog", "--print-address=1"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("dbus-daemon (tests/peers/install runtime)");
        let mut address = String::new();
        let stdout = daemon.stdout.take().expect("its stdout");
        BufReader::new(stdout).read_line(&mut address).expect("its address");
        let mut service = connect(&path);
        for name in names {
            send(&mut service, &mut standard_messages::request_name(name, 0));
        }
        Self { path, service: std::sync::Mutex::new(Some(service)), daemon, _folder: folder }
    }

    /// Answers these calls, in this order, and tells with what they came. An answer is a text (`fd`: a file descriptor, `prop N`: a number
    /// as a property, `yes` and `no`: a switch as one), an error has a name.
    pub(crate) fn answer(&self, calls: Vec<(&'static str, Result<&'static str, &'static str>)>) -> Answers {
        let mut service = self.service.lock().expect("lock").take().expect("answers once at a time");
        let thread = spawn("test-bus", StackSize::Normal, move || {
            let asked = calls.into_iter().map(|(method, answer)| one(&mut service, method, answer)).collect();
            (asked, service)
        });
        Answers(thread.expect("a thread"))
    }

    /// Takes the service back from those who answered.
    pub(crate) fn take_back(&self, answers: Answers) -> Vec<Asked> {
        let (asked, service) = answers.0.join().expect("the service");
        *self.service.lock().expect("lock") = Some(service);
        asked
    }

    /// logind says that a shutdown begins, or was called off.
    pub(crate) fn prepare_for_shutdown(&self, begins: bool) {
        let mut signal = MessageBuilder::new()
            .signal("org.freedesktop.login1.Manager", "PrepareForShutdown", "/org/freedesktop/login1")
            .build();
        signal.body.push_param(begins).expect("a switch");
        send(self.service.lock().expect("lock").as_mut().expect("nobody answers now"), &mut signal);
    }
}

/// Somebody who answers.
pub(crate) struct Answers(JoinHandle<(Vec<Asked>, RpcConn)>);

impl Answers {
    /// What was asked, once all is answered.
    pub(crate) fn join(self) -> Vec<Asked> {
        self.0.join().expect("the service").0
    }
}

impl Drop for TestBus {
    fn drop(&mut self) {
        let _ended = self.daemon.kill();
        let _reaped = self.daemon.wait();
    }
}

fn connect(path: &std::path::Path) -> RpcConn {
    RpcConn::connect_to_path(UnixAddr::new(path).expect("an address"), Timeout::Infinite).expect("the bus")
}

fn send(conn: &mut RpcConn, message: &mut MarshalledMessage) {
    conn.send_message(message).expect("a message").write_all().map_err(force_finish_on_error).expect("sent");
}

fn one(service: &mut RpcConn, method: &str, answer: Result<&str, &str>) -> Asked {
    let call = service.wait_call(Timeout::Infinite).expect("a call");
    assert_eq!(call.dynheader.member.as_deref(), Some(method));
    let mut parser = call.body.parser();
    let words = std::iter::from_fn(|| parser.get::<String>().ok()).collect();
    let signature = call.dynheader.signature.clone().unwrap_or_default();
    match answer {
        Err(name) => send_error(service, &call, name),
        Ok(text) => {
            let mut reply = call.dynheader.make_response();
            let body = &mut reply.body;
            match text.split_once(' ') {
                Some(("prop", number)) => body.push_variant(number.parse::<u64>().expect("a number")),
                _ if text == "yes" || text == "no" => body.push_variant(text == "yes"),
                _ if text == "fd" => {
                    let file = tempfile::tempfile().expect("a file");
                    body.push_param(rustbus::wire::UnixFd::new(std::os::fd::IntoRawFd::into_raw_fd(file)))
                }
                _ => body.push_param(text),
            }
            .expect("an answer");
            send(service, &mut reply);
        }
    }
    Asked { signature, words }
}

/// The library writes no errors (its messages have no place for an error's name): here is one, byte by byte.
fn send_error(service: &mut RpcConn, call: &MarshalledMessage, name: &str) {
    fn number(bytes: &mut Vec<u8>, value: usize) {
        bytes.extend(u32::try_from(value).expect("small").to_le_bytes());
    }
    fn text(bytes: &mut Vec<u8>, value: &str) {
        number(bytes, value.len());
        bytes.extend(value.as_bytes());
        bytes.push(0);
    }
    let serial = service.alloc_serial() as usize;
    let header = &call.dynheader;
    let mut fields = Vec::new();
    let texts = [(4, name), (6, header.sender.as_deref().expect("a sender"))];
    for (code, value) in texts {
        fields.resize(fields.len().next_multiple_of(8), 0);
        fields.extend([code, 1, b's', 0]);
        text(&mut fields, value);
    }
    fields.resize(fields.len().next_multiple_of(8), 0);
    fields.extend([5, 1, b'u', 0]);
    number(&mut fields, header.serial.expect("a serial") as usize);
    fields.extend([8, 1, b'g', 0, 1, b's', 0]);
    let mut body = Vec::new();
    text(&mut body, "no");
    let mut bytes = vec![b'l', 3, 1, 1];
    number(&mut bytes, body.len());
    number(&mut bytes, serial);
    number(&mut bytes, fields.len());
    bytes.extend(&fields);
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    bytes.extend(body);
    // SAFETY: the connection owns the descriptor and outlives this copy of it.
    let socket = unsafe { std::os::fd::BorrowedFd::borrow_raw(std::os::fd::AsRawFd::as_raw_fd(&service.conn().send)) };
    let mut socket = std::fs::File::from(socket.try_clone_to_owned().expect("a copy"));
    std::io::Write::write_all(&mut socket, &bytes).expect("sent");
}
