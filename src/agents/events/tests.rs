//! Tests of the writer of events against an API server that answers as the test says.

use crossbeam_channel::{Receiver, Sender, bounded, unbounded};

use super::*;
use crate::msg::{EventObject, EventType};

const LONG: Duration = Duration::from_secs(60);

/// Tells the test of each request and answers as it says.
struct Fake {
    asked: Sender<String>,
    answers: Receiver<Result<(), Refusal>>,
}

impl Fake {
    fn answer(&self, text: String, event: Event) -> Result<Event, Refusal> {
        self.asked.send(text).map_err(|_| Refusal::Denied("the test is over".to_owned()))?;
        self.answers.recv().unwrap_or(Ok(())).map(|()| event)
    }
}

impl EventApi for Fake {
    fn create_event(&self, event: &Event) -> Result<Event, Refusal> {
        let text = format!("create {} x{}", event.message.as_deref().unwrap_or_default(), event.count.unwrap_or(0));
        self.answer(text, event.clone())
    }

    fn patch_event(&self, namespace: &str, name: &str, patch: Vec<u8>) -> Result<Event, Refusal> {
        let patch: serde_json::Value = serde_json::from_slice(&patch).expect("a patch");
        let mut event =
            Event { count: patch["count"].as_i64().and_then(|c| i32::try_from(c).ok()), ..Event::default() };
        event.metadata.name = Some(name.to_owned());
        self.answer(format!("patch {namespace} x{}", patch["count"]), event)
    }
}

fn told(message: &str) -> ToldEvent {
    let object = EventObject { kind: "Pod", name: "p".into(), namespace: "ns".into(), ..EventObject::default() };
    ToldEvent { object, event_type: EventType::Normal, reason: "R".into(), message: message.to_owned(), at: 1 }
}

/// The events, what the server answers to each request, and the requests.
fn check(events: &[&str], answers: Vec<Result<(), Refusal>>, expect: &[&str]) {
    let (asked, requests) = unbounded();
    let (answer, fake_answers) = bounded(64);
    let api = Box::new(Fake { asked, answers: fake_answers });
    let handle = EventsHandle::start_with(api, "n", Duration::from_millis(1)).expect("a thread");
    for answer_next in answers {
        answer.send(answer_next).expect("room");
    }
    drop(answer);
    for message in events {
        handle.sender().tell(told(message));
    }
    for expected in expect {
        assert_eq!(requests.recv_timeout(LONG).as_deref(), Ok(*expected));
    }
    drop(handle);
    assert_eq!(requests.try_iter().collect::<Vec<_>>(), Vec::<String>::new());
}

fn away() -> Result<(), Refusal> {
    Err(Refusal::Away("no route".to_owned()))
}

#[test]
fn an_event_is_written_once_and_its_repetition_counted() {
    check(&["a", "a", "b"], vec![], &["create a x1", "patch ns x2", "create b x1"]);
}

#[test]
fn an_event_that_the_server_has_forgotten_is_written_anew_with_its_count() {
    check(&["a", "a"], vec![Ok(()), Err(Refusal::NotFound)], &["create a x1", "patch ns x2", "create a x2"]);
}

#[test]
fn what_the_server_refuses_is_not_tried_again() {
    let no = Err(Refusal::Denied("forbidden".to_owned()));
    check(&["a", "b"], vec![no, Ok(())], &["create a x1", "create b x1"]);
    check(&["a", "b"], vec![Err(Refusal::Exists), Ok(())], &["create a x1", "create b x1"]);
}

#[test]
fn an_event_is_tried_twelve_times_while_the_server_is_away() {
    check(&["a"], vec![away(), away(), Ok(())], &["create a x1"; 3]);
    let mut expect = vec!["create a x1"; 12];
    expect.push("create b x1");
    check(&["a", "b"], (0..12).map(|_| away()).collect(), &expect);
}

#[test]
fn the_oldest_events_go_when_too_many_wait() {
    let shared = Arc::new(Shared { queue: Mutex::default(), arrived: Condvar::new(), stop: Cancel::new() });
    let sender = EventSender { shared: Arc::clone(&shared) };
    for n in 0..QUEUED + 3 {
        sender.tell(told(&n.to_string()));
    }
    let queue = shared.lock();
    assert_eq!((queue.waiting.len(), queue.dropped), (QUEUED, 3));
    assert_eq!(queue.waiting.front().map(|told| told.message.as_str()), Some("3"));
}
