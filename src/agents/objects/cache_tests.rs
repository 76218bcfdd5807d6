//! Tests of what counts as known, and for how long.

use super::*;
use crate::volumes::objects::ObjectKind;

fn at(seconds: u64) -> Moment {
    Moment::from_boot(Duration::from_secs(1000 + seconds))
}

fn key() -> ObjectKey {
    ObjectKey::new(ObjectKind::Secret, "n", "s")
}

fn found(version: &str, immutable: bool) -> Known {
    Known::Found(Arc::new(ObjectData { version: version.to_owned(), immutable, ..ObjectData::default() }))
}

/// One pod asks, gets `known` at second 0, and asks again at each of the seconds: `f` fetches, `k` knows.
fn check(strategy: Strategy, known: Known, seconds: &[u64], expect: &str) {
    let mut cache = Cache::new(strategy);
    let key = key();
    assert!(cache.register(&"a".into(), &key, Purpose::Mount));
    assert_eq!(cache.ask(&key, at(0)), Say::Fetch);
    assert_eq!(cache.ask(&key, at(0)), Say::Wait, "one question at a time");
    cache.fetched(&key, known.clone(), at(0));
    let mut got = String::new();
    for second in seconds {
        match cache.ask(&key, at(*second)) {
            Say::Known(again) => {
                assert_eq!(again, known);
                got.push('k');
            }
            Say::Fetch => {
                cache.failed(&key);
                got.push('f');
            }
            Say::Wait => got.push('w'),
        }
    }
    assert_eq!(got, expect, "{strategy:?} {known:?}");
}

#[test]
fn each_strategy_has_its_own_patience() {
    check(Strategy::Watch, found("1", false), &[0, 2], "kf");
    check(Strategy::Cache, found("1", false), &[0, 2, 59, 60], "kkkf");
    check(Strategy::Get, found("1", false), &[0, 2], "kf");
    check(Strategy::Watch, found("1", true), &[0, 2, 5000], "kkk");
    check(Strategy::Cache, Known::Missing, &[0], "f");
}

#[test]
fn a_new_pod_does_not_start_with_what_is_old() {
    let mut cache = Cache::new(Strategy::Cache);
    let key = key();
    cache.register(&"a".into(), &key, Purpose::Mount);
    cache.ask(&key, at(0));
    cache.fetched(&key, found("1", false), at(0));
    assert!(!cache.register(&"b".into(), &key, Purpose::Mount));
    assert_eq!(cache.ask(&key, at(1)), Say::Fetch);
    cache.fetched(&key, found("2", false), at(1));
    assert!(!cache.register(&"a".into(), &key, Purpose::Mount));
    assert_eq!(cache.ask(&key, at(2)), Say::Known(found("2", false)));
}

#[test]
fn a_live_watch_answers_for_ever_and_tells_those_who_mount() {
    let mut cache = Cache::new(Strategy::Watch);
    let key = key();
    cache.register(&"a".into(), &key, Purpose::Mount);
    cache.register(&"b".into(), &key, Purpose::Read);
    assert_eq!(cache.ask(&key, at(0)), Say::Fetch);
    assert_eq!(cache.failed(&key), None);
    assert_eq!(cache.next_look().map(|(at, _)| at), Some(Moment::default()), "for the pod that waits");
    cache.live(&key);
    assert_eq!(cache.next_look(), None);
    assert_eq!(cache.told(&key, found("1", false), at(1)), ["a".into()]);
    assert_eq!(cache.told(&key, found("1", false), at(2)), []);
    assert_eq!(cache.ask(&key, at(9999)), Say::Known(found("1", false)));
    assert_eq!(cache.told(&key, Known::Missing, at(3)), ["a".into()]);
    assert_eq!(cache.ask(&key, at(9999)), Say::Known(Known::Missing));
    cache.told(&key, found("2", false), at(4));
    // The watch breaks, and the server with it: what is known is still told, after one question.
    cache.blind(&key);
    assert_eq!(cache.ask(&key, at(9999)), Say::Fetch);
    assert!(cache.failed(&key).is_some());
    cache.live(&key);
    assert_eq!((cache.is_found(&key), cache.doubt(&key)), (true, vec!["a".into()]));
    assert_eq!(cache.ask(&key, at(9999)), Say::Fetch);
}

#[test]
fn what_nobody_mounts_is_not_watched_and_what_nobody_needs_is_dropped() {
    let mut cache = Cache::new(Strategy::Watch);
    let (one, two) = (key(), ObjectKey::new(ObjectKind::ConfigMap, "n", "c"));
    assert!(!cache.register(&"a".into(), &one, Purpose::Read));
    assert!(cache.register(&"a".into(), &two, Purpose::Mount));
    assert!(!cache.register(&"b".into(), &two, Purpose::Mount));
    assert_eq!(cache.to_watch().collect::<Vec<_>>(), [&two]);
    assert!(!cache.forget(&"a".into()));
    assert!(!cache.items.contains_key(&one));
    cache.ask(&two, at(0));
    cache.fetched(&two, found("1", true), at(0));
    assert_eq!(cache.to_watch().count(), 0, "it never changes");
    assert!(cache.forget(&"b".into()));
    assert!(cache.items.is_empty());
}

#[test]
fn without_watches_objects_take_turns() {
    let mut cache = Cache::new(Strategy::Cache);
    let (one, two) = (key(), ObjectKey::new(ObjectKind::ConfigMap, "n", "c"));
    for (key, second) in [(&one, 0), (&two, 10)] {
        cache.register(&"a".into(), key, Purpose::Mount);
        cache.ask(key, at(second));
        cache.fetched(key, found("1", false), at(second));
    }
    assert_eq!(cache.next_look(), Some((at(60), &one)));
    cache.told(&one, found("1", false), at(60));
    assert_eq!(cache.next_look(), Some((at(70), &two)));
    cache.put_off(at(100));
    assert_eq!(cache.next_look().map(|(at, _)| at), Some(at(100)));
}

#[test]
fn what_a_worker_finds_changed_is_told_to_the_pods_that_were_there() {
    let mut cache = Cache::new(Strategy::Get);
    let key = key();
    let secret = key.clone();
    let mut find = |pod: &str, version: &str, second: u64| {
        cache.register(&pod.into(), &key, Purpose::Mount);
        assert_eq!(cache.ask(&key, at(second)), Say::Fetch);
        cache.fetched(&key, found(version, false), at(second));
        cache.take_untold()
    };
    assert_eq!(find("a", "1", 0), []);
    assert_eq!(find("b", "1", 10), []);
    assert_eq!(find("c", "2", 20), [(secret, vec!["a".into(), "b".into(), "c".into()])]);
    assert_eq!(find("d", "2", 30), []);
    cache.fetched(&key, found("3", false), at(40));
    for pod in ["a", "b", "c", "d"] {
        cache.forget(&pod.into());
    }
    assert_eq!(cache.take_untold(), [], "nobody is there any more");
}
