//! HTTP/2 as the fake API server speaks it: GETs and watches, as many streams on a connection as it is told.
//!
//! Used on the threads of its connections; each owns one connection, and looks for news of its watches every few
//! milliseconds. It reads requests of a client that keeps no header table and packs nothing, which is this project's.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use rustls::{ServerConnection, StreamOwned};
use serde_json::json;

use super::api::{ApiFault, LONG, Shared, handle};
use super::api_store::failure;
use super::api_wire::{Request, unescape};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// How often watches are looked at.
const TICK: Duration = Duration::from_millis(5);

type Wire = StreamOwned<ServerConnection, TcpStream>;

struct Watch {
    request: Request,
    from: Option<u64>,
    cuts: u64,
}

/// One connection.
struct Connection<'a> {
    wire: &'a mut Wire,
    shared: &'a Arc<Shared>,
    input: VecDeque<u8>,
    watches: BTreeMap<u32, Watch>,
    /// Streams that are left without an answer.
    hung: Vec<u32>,
    most: usize,
}

/// Serves a connection until the client or the server ends.
pub(super) fn serve(wire: &mut Wire, shared: &Arc<Shared>) -> io::Result<()> {
    let number = {
        let mut state = shared.lock();
        let number = state.streams.last_key_value().map_or(0, |(number, _)| number + 1);
        state.streams.insert(number, 0);
        number
    };
    let served = serve_as(number, wire, shared);
    shared.lock().streams.remove(&number);
    served
}

fn serve_as(number: usize, wire: &mut Wire, shared: &Arc<Shared>) -> io::Result<()> {
    wire.sock.set_read_timeout(Some(TICK))?;
    let most = shared.lock().most_streams;
    let (input, watches) = (VecDeque::new(), BTreeMap::new());
    let mut connection = Connection { wire, shared, input, watches, hung: Vec::new(), most };
    let settings = [&3_u16.to_be_bytes()[..], &u32::try_from(most).expect("few").to_be_bytes()].concat();
    connection.frame(4, 0, 0, &settings)?;
    loop {
        let mut state = shared.wait_while(shared.lock(), LONG, |state| state.partitioned);
        let is_over = state.stopping || state.dropped.take_if(|dropped| *dropped == number).is_some();
        drop(state);
        if is_over {
            return Ok(());
        }
        let mut buffer = [0; 16 * 1024];
        match connection.wire.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(read) => connection.input.extend(&buffer[..read]),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {}
            Err(error) => return Err(error),
        }
        // A partition that began meanwhile holds what has arrived.
        if shared.lock().partitioned {
            continue;
        }
        while let Some((kind, flags, id, payload)) = connection.next_frame() {
            connection.take(kind, flags, id, &payload)?;
        }
        connection.tell_news()?;
        shared.lock().streams.insert(number, connection.watches.len());
    }
}

impl Connection<'_> {
    fn frame(&mut self, kind: u8, flags: u8, id: u32, payload: &[u8]) -> io::Result<()> {
        for (index, piece) in payload.chunks(16 * 1024).enumerate().chain(payload.is_empty().then_some((0, payload))) {
            let is_last = (index + 1) * 16 * 1024 >= payload.len();
            let length = u32::try_from(piece.len()).expect("short").to_be_bytes();
            let flags = if is_last { flags } else { 0 };
            let head = [&length[1..], &[kind, flags], &id.to_be_bytes()].concat();
            self.wire.write_all(&[&head, piece].concat())?;
        }
        self.wire.flush()
    }

    fn next_frame(&mut self) -> Option<(u8, u8, u32, Vec<u8>)> {
        let skipped = if self.input.make_contiguous().starts_with(PREFACE) { PREFACE.len() } else { 0 };
        let head = self.input.iter().copied().skip(skipped).take(9).collect::<Vec<_>>();
        let [a, b, c, kind, flags, id @ ..] = head.as_slice() else { return None };
        let length = usize::from(*a) << 16 | usize::from(*b) << 8 | usize::from(*c);
        let id = u32::from_be_bytes(id.try_into().ok()?);
        let (kind, flags) = (*kind, *flags);
        if self.input.len() < skipped + 9 + length {
            return None;
        }
        self.input.drain(..skipped + 9);
        Some((kind, flags, id, self.input.drain(..length).collect()))
    }

    fn take(&mut self, kind: u8, flags: u8, id: u32, payload: &[u8]) -> io::Result<()> {
        match kind {
            1 if self.watches.len() + self.hung.len() >= self.most => self.frame(3, 0, id, &7_u32.to_be_bytes()),
            1 => self.answer(id, request(payload)),
            3 => {
                self.watches.remove(&id);
                self.hung.retain(|hung| *hung != id);
                Ok(())
            }
            4 if flags & 1 == 0 => self.frame(4, 1, 0, &[]),
            6 if flags & 1 == 0 => self.frame(6, 1, 0, payload),
            _ => Ok(()),
        }
    }

    fn answer(&mut self, id: u32, mut request: Request) -> io::Result<()> {
        let certificates = self.wire.conn.peer_certificates();
        request.certificate = certificates.and_then(|chain| chain.first()).map(|first| first.as_ref().to_vec());
        let (fault, cuts) = self.shared.begin(&request);
        match fault {
            Some(ApiFault::Hang) => {
                self.hung.push(id);
                Ok(())
            }
            Some(ApiFault::Status(code, _)) => {
                let (_, body) = failure(code, "", "made to fail");
                self.whole(id, code, body.to_string().as_bytes())
            }
            // What else may go wrong goes wrong with the stream.
            Some(_) => self.frame(3, 0, id, &2_u32.to_be_bytes()),
            None if request.query.contains_key("watch") => {
                self.frame(1, 4, id, &[0x88])?;
                let from = request.query.get("resourceVersion").and_then(|text| text.parse().ok());
                self.watches.insert(id, Watch { request, from, cuts });
                Ok(())
            }
            None => {
                let (code, body) = handle(&request, &mut self.shared.lock().store);
                self.shared.changed.notify_all();
                self.whole(id, code, body.to_string().as_bytes())
            }
        }
    }

    fn whole(&mut self, id: u32, code: u16, body: &[u8]) -> io::Result<()> {
        let head = [&[0x08, 3][..], code.to_string().as_bytes()].concat();
        self.frame(1, 4, id, &head)?;
        self.frame(0, 1, id, body)
    }

    fn tell_news(&mut self) -> io::Result<()> {
        let mut told = Vec::new();
        {
            let state = self.shared.lock();
            for (id, watch) in &mut self.watches {
                if state.cuts != watch.cuts {
                    told.push((*id, None));
                    continue;
                }
                let Some(lines) = state.store.news(&watch.request, watch.from) else {
                    let (_, status) = failure(410, "Expired", "too old resource version");
                    told.push((*id, Some(format!("{}\n", json!({"type": "ERROR", "object": status})))));
                    watch.from = Some(u64::MAX);
                    continue;
                };
                watch.from = Some(state.store.version);
                if !lines.is_empty() {
                    told.push((*id, Some(lines)));
                }
            }
        }
        for (id, lines) in told {
            match lines {
                Some(lines) => self.frame(0, 0, id, lines.as_bytes())?,
                None => {
                    self.watches.remove(&id);
                    self.frame(3, 0, id, &2_u32.to_be_bytes())?;
                }
            }
        }
        Ok(())
    }
}

/// Reads the header block of a GET.
fn request(block: &[u8]) -> Request {
    let mut rest = block.iter().copied();
    let mut headers = BTreeMap::new();
    let mut target = String::new();
    while let Some(first) = rest.next() {
        if first >= 0x20 {
            // A place in the fixed table, or a table of no size.
            continue;
        }
        let name = integer(&mut rest, first, 4);
        let length = rest.next().map_or(0, |first| integer(&mut rest, first, 7));
        let value = String::from_utf8(rest.by_ref().take(length).collect()).expect("text");
        match name {
            4 => target = value,
            23 => drop(headers.insert("authorization".to_owned(), value)),
            58 => drop(headers.insert("user-agent".to_owned(), value)),
            _ => {}
        }
    }
    let (path, query) = target.split_once('?').unwrap_or((&target, ""));
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    let query = pairs.map(|(name, value)| (unescape(name), unescape(value))).collect();
    Request { method: "GET".to_owned(), path: unescape(path), query, headers, body: Vec::new(), certificate: None }
}

fn integer(rest: &mut impl Iterator<Item = u8>, first: u8, bits: u32) -> usize {
    let most = (1_usize << bits) - 1;
    let mut value = usize::from(first) & most;
    let mut shift = 0;
    while value >= most {
        let byte = rest.next().expect("a whole number");
        value += usize::from(byte & 0x7f) << shift;
        shift += 7;
        if byte < 0x80 {
            break;
        }
    }
    value
}
