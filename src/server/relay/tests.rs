//! Tests of sessions: over real sockets on the relay's thread, and step by step with sides that do as they are told.

use super::session::{Next, Session};
use super::*;
use proptest::prelude::*;
use std::collections::VecDeque;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::os::fd::OwnedFd;

const LONG: Duration = Duration::from_secs(3600);

/// Two ends of a connection, the first not waiting.
fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let theirs = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (ours, _) = listener.accept().unwrap();
    ours.set_nonblocking(true).unwrap();
    (ours, theirs)
}

/// A session over sockets: what the client and what the runtime has of it.
fn session(relay: &Relay, middle: Option<Box<dyn Middle>>) -> (TcpStream, TcpStream) {
    let ((client_side, client), (runtime_side, runtime)) = (pair(), pair());
    let place = relay.reserve().unwrap();
    relay.serve(place, Box::new(client_side), Box::new(runtime_side), middle).unwrap();
    (client, runtime)
}

fn say(stream: &mut TcpStream, words: &[u8]) {
    stream.write_all(words).unwrap();
}

fn hear(stream: &mut TcpStream, count: usize) -> Vec<u8> {
    let mut got = vec![0; count];
    stream.read_exact(&mut got).unwrap();
    got
}

fn rest(stream: &mut TcpStream) -> Vec<u8> {
    let mut got = Vec::new();
    stream.read_to_end(&mut got).unwrap();
    got
}

#[test]
fn many_sessions_go_both_ways_on_one_thread_which_ends_after_the_last() {
    let relay = Relay::new(LONG).unwrap();
    for _round in 0..2 {
        let mut ends: Vec<_> = (0..100).map(|_| session(&relay, None)).collect();
        assert_eq!(relay.sessions(), 100);
        for (number, (client, runtime)) in ends.iter_mut().enumerate() {
            say(client, &[number as u8; 3]);
            say(runtime, &[number as u8 + 1; 2]);
        }
        for (number, (client, runtime)) in ends.iter_mut().enumerate() {
            assert_eq!(hear(runtime, 3), [number as u8; 3]);
            assert_eq!(hear(client, 2), [number as u8 + 1; 2]);
        }
        for (mut client, runtime) in ends {
            drop(runtime);
            assert_eq!(rest(&mut client), b"");
        }
        let thread = relay.shared.lock().thread.take().unwrap();
        assert!(thread.ended_within(Duration::from_secs(60)));
        assert_eq!(relay.sessions(), 0);
    }
}

#[test]
fn a_half_close_goes_through_and_the_other_half_stays_open() {
    let relay = Relay::new(LONG).unwrap();
    let (mut client, mut runtime) = session(&relay, None);
    say(&mut client, b"question");
    client.shutdown(Shutdown::Write).unwrap();
    assert_eq!(rest(&mut runtime), b"question");
    say(&mut runtime, b"answer");
    drop(runtime);
    assert_eq!(rest(&mut client), b"answer");
}

#[test]
fn a_slow_reader_slows_its_writer_down_and_gets_every_byte() {
    let relay = Relay::new(LONG).unwrap();
    let (mut client, mut runtime) = session(&relay, None);
    let bytes: Vec<u8> = (0..20_000_000u32).map(|n| (n >> 8) as u8).collect();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            say(&mut runtime, &bytes);
            runtime.shutdown(Shutdown::Write).unwrap();
        });
        // Another session is not held up by it.
        let (mut other, mut others) = session(&relay, None);
        say(&mut other, b"quick");
        assert_eq!(hear(&mut others, 5), b"quick");
        assert!(rest(&mut client) == bytes, "the bytes differ");
    });
}

#[test]
fn the_end_of_the_agent_ends_sessions_and_no_more_begin() {
    let relay = Relay::new(LONG).unwrap();
    let (mut client, mut runtime) = session(&relay, None);
    say(&mut client, b"x");
    assert_eq!(hear(&mut runtime, 1), b"x");
    drop(relay);
    assert_eq!((rest(&mut client), rest(&mut runtime)), (vec![], vec![]));
}

#[test]
fn there_is_a_bound_and_places_come_back() {
    let relay = Relay::new(LONG).unwrap();
    let places: Vec<_> = (0..MAX_SESSIONS).map(|_| relay.reserve().unwrap()).collect();
    assert!(relay.reserve().is_none());
    drop(places);
    assert!(relay.reserve().is_some());
}

/// A side that gives these pieces and takes so many bytes at a time; 0 is a moment without room.
struct Script {
    gives: VecDeque<Vec<u8>>,
    takes: VecDeque<usize>,
    got: Arc<Mutex<Vec<u8>>>,
    breaks: bool,
    fd: OwnedFd,
}

impl Script {
    fn new(gives: Vec<Vec<u8>>, takes: Vec<usize>) -> (Self, Arc<Mutex<Vec<u8>>>) {
        let got = Arc::default();
        let fd = TcpListener::bind("127.0.0.1:0").unwrap().into();
        (Self { gives: gives.into(), takes: takes.into(), got: Arc::clone(&got), breaks: false, fd }, got)
    }
}

impl AsFd for Script {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Side for Script {
    fn try_read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self.gives.pop_front() {
            None if self.breaks => Err(io::ErrorKind::ConnectionReset.into()),
            None => Ok(0),
            Some(piece) if piece.is_empty() => Err(io::ErrorKind::WouldBlock.into()),
            Some(piece) => {
                let count = piece.len().min(into.len());
                into[..count].copy_from_slice(&piece[..count]);
                if count < piece.len() {
                    self.gives.push_front(piece[count..].to_vec());
                }
                Ok(count)
            }
        }
    }

    fn try_write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.takes.pop_front() {
            Some(0) => Err(io::ErrorKind::WouldBlock.into()),
            Some(usize::MAX) => Err(io::ErrorKind::BrokenPipe.into()),
            takes => {
                let count = bytes.len().min(takes.unwrap_or(usize::MAX));
                self.got.lock().unwrap().extend_from_slice(&bytes[..count]);
                Ok(count)
            }
        }
    }

    fn try_flush(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn try_finish(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn wants_write(&self) -> bool {
        false
    }
}

fn scripted(client: Script, runtime: Script, now: Instant) -> Session {
    let relay = Relay::new(LONG).unwrap();
    Session::new(relay.reserve().unwrap(), Box::new(client), Box::new(runtime), None, Duration::from_secs(60), now)
}

fn pieces() -> impl Strategy<Value = Vec<Vec<u8>>> {
    prop::collection::vec(prop::collection::vec(any::<u8>(), 0..50), 0..8)
}

proptest! {
    #![proptest_config(ProptestConfig { rng_seed: proptest::test_runner::RngSeed::Fixed(6), failure_persistence: None, ..Default::default() })]

    /// In whatever pieces bytes come and go: each side gets what the other said, and the session ends.
    #[test]
    fn every_byte_arrives_once(
        questions in pieces(), answers in pieces(),
        client_takes in prop::collection::vec(0usize..20, 0..12), runtime_takes in prop::collection::vec(0usize..20, 0..12),
    ) {
        let (client, client_got) = Script::new(questions.clone(), client_takes);
        let (runtime, runtime_got) = Script::new(answers.clone(), runtime_takes);
        let now = Instant::now();
        let mut session = scripted(client, runtime, now);
        let mut block = [0; 16];
        let mut steps = 0;
        while session.step(&mut block, now) == Next::Wait {
            steps += 1;
            prop_assert!(steps < 200, "it does not end");
        }
        prop_assert_eq!(&*runtime_got.lock().unwrap(), &questions.concat());
        prop_assert_eq!(&*client_got.lock().unwrap(), &answers.concat());
    }
}

#[test]
fn idle_and_half_ended_sessions_end_in_their_time() {
    let silent = || Script::new(vec![vec![]; 100], vec![]).0;
    let now = Instant::now();
    let mut block = [0; 16];
    for (gives, last) in [(vec![vec![]; 100], 60), (vec![], 10)] {
        let mut session = scripted(silent(), Script::new(gives, vec![]).0, now);
        assert_eq!(session.step(&mut block, now), Next::Wait);
        assert_eq!(session.due(now), Some(now + Duration::from_secs(last)));
        assert_eq!(session.step(&mut block, now + Duration::from_secs(last) - Duration::from_millis(1)), Next::Wait);
        assert_eq!(session.step(&mut block, now + Duration::from_secs(last) + Duration::from_millis(1)), Next::Over);
    }
}

#[test]
fn a_broken_side_gets_nothing_more_and_its_last_words_arrive() {
    let now = Instant::now();
    let (mut client, _) = Script::new(vec![b"last words".to_vec()], vec![]);
    client.breaks = true;
    let (runtime, heard) = Script::new(vec![b"x".to_vec(); 3], vec![]);
    let mut session = scripted(client, runtime, now);
    let mut block = [0; 16];
    while session.step(&mut block, now) == Next::Wait {}
    assert_eq!(*heard.lock().unwrap(), b"last words");
    // One that takes nothing more ends what comes for it.
    let (client, _) = Script::new(vec![vec![]; 1000], vec![usize::MAX]);
    let (runtime, _) = Script::new(vec![b"x".to_vec(); 1000], vec![]);
    let mut session = scripted(client, runtime, now);
    session.step(&mut block, now);
    assert_eq!(session.due(now), Some(now + Duration::from_secs(10)));
}

/// Says everything twice to the runtime, and tells the client how much.
struct Twice;

impl Middle for Twice {
    fn client_said(&mut self, bytes: &[u8], said: &mut Said) -> Result<(), String> {
        if bytes == b"!" {
            return Err("no shouting".to_owned());
        }
        said.to_runtime.extend([bytes, bytes].concat());
        said.to_client.extend(bytes.len().to_string().bytes());
        Ok(())
    }

    fn runtime_said(&mut self, bytes: &[u8], said: &mut Said) -> Result<(), String> {
        said.client_is_done = bytes == b"done";
        said.to_client.extend(bytes);
        Ok(())
    }
}

#[test]
fn a_middle_has_its_say_to_both() {
    let relay = Relay::new(LONG).unwrap();
    let (mut client, mut runtime) = session(&relay, Some(Box::new(Twice)));
    say(&mut client, b"ab");
    assert_eq!(hear(&mut runtime, 4), b"abab");
    assert_eq!(hear(&mut client, 1), b"2");
    say(&mut runtime, b"done");
    assert_eq!(rest(&mut client), b"done");
    drop(client);
    assert_eq!(rest(&mut runtime), b"");
    let (mut client, mut runtime) = session(&relay, Some(Box::new(Twice)));
    say(&mut client, b"!");
    assert_eq!((rest(&mut client), rest(&mut runtime)), (vec![], vec![]));
}
