//! What the API server has been told of each pod, and what it has to be told next.
//!
//! Owned by the thread `status`; no I/O and no clock, `now` is an argument. The newest status of a pod
//! is the only one that counts: an older one that was never sent is forgotten. Statuses are compared by
//! pointer first, so that nothing is computed while nothing changes.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::api::moment::Moment;
use crate::api::pod::is_static;
use crate::api::v1::{Pod, PodStatus};
use crate::api::{PodName, PodUid};
use crate::core::mirror::mirrors_it;
use crate::core::status::{self, Phase};
use crate::msg::{Life, NodeView, PodView};
use crate::util::metrics::kubelet;

/// When something that was refused, or that the API shows differently, is sent again; as upstream.
pub(super) const RESYNC: Duration = Duration::from_secs(10);

/// How long a step on the way waits for the next one after the last word on its pod: a pod that starts
/// has several within a fraction of a second, and only the last one interests anybody.
pub(super) const GATHER: Duration = Duration::from_millis(500);

/// One pod whose status the API has to be told, or whose object it may delete.
#[derive(Clone, Debug)]
pub(super) struct Due {
    /// The pod on this node.
    pub uid: PodUid,
    /// Its name, which is its mirror's too.
    pub name: PodName,
    /// The uid of its object at the API server.
    pub api_uid: String,
    /// What to tell.
    pub status: Arc<PodStatus>,
    /// The newest object of the API that is known here: what it was last seen with, or what it answered
    /// last. None if nobody can say which of the two is newer.
    pub base: Option<Arc<Pod>>,
    /// Whether its object may be deleted for good once the API asks for it: never a mirror's.
    pub may_be_deleted: bool,
}

/// How the newest attempt for a pod went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Attempt {
    /// None yet.
    None,
    /// The API has it; since when.
    Told(Moment),
    /// It was refused; when.
    Refused(Moment),
    /// The object is gone, or is another pod's: nobody wants to know.
    Moot,
}

#[derive(Debug)]
struct Page {
    api_uid: String,
    status: Arc<PodStatus>,
    life: Life,
    /// Since when the status is this.
    since: Moment,
    attempt: Attempt,
    /// The last word on this pod that the API took.
    word: Option<Word>,
    /// The object that was compared with the status last, and whether they differ.
    compared: Option<(Arc<Pod>, bool)>,
}

/// What the API was told last of a pod.
#[derive(Debug)]
struct Word {
    at: Moment,
    status: Arc<PodStatus>,
    /// Its answer, until the watch shows that or a newer one.
    answer: Option<Arc<Pod>>,
}

/// The book of all pods.
#[derive(Debug, Default)]
pub(super) struct Book {
    pages: BTreeMap<PodUid, Page>,
}

impl Book {
    /// What is due now, and when to look again though nothing happens.
    pub(super) fn due(&mut self, view: &NodeView, now: Moment) -> (Vec<Due>, Option<Moment>) {
        let mut due = Vec::new();
        let mut wake: Option<Moment> = None;
        self.pages.retain(|uid, _| view.pods.contains_key(uid));
        if !view.is_listed {
            return (due, None);
        }
        for pod in view.pods.values() {
            let Some(object) = object_of(pod, view) else { continue };
            let page = self.page(pod, object, now);
            let is_over = may_be_deleted(pod, object);
            let at = match page.attempt {
                Attempt::Moot => None,
                Attempt::None => Some(page.first_try(now)),
                Attempt::Refused(at) => Some(at + RESYNC),
                Attempt::Told(at) => (is_over || page.differs(object)).then_some(at + RESYNC),
            };
            match at {
                Some(at) if at <= now => due.push(Due {
                    uid: pod.uid.clone(),
                    name: pod.name.clone(),
                    api_uid: page.api_uid.clone(),
                    status: Arc::clone(&pod.status),
                    base: page.base(object),
                    may_be_deleted: pod.life == Life::Over && !is_static_pod(pod),
                }),
                Some(at) => wake = Some(wake.map_or(at, |old| old.min(at))),
                None => {}
            }
        }
        (due, wake)
    }

    /// The page of a pod as it is now: a new status or another object starts a new one.
    fn page(&mut self, pod: &PodView, object: &Arc<Pod>, now: Moment) -> &mut Page {
        let api_uid = object.metadata.uid.as_deref().unwrap_or_default();
        let fresh = |word| Page {
            api_uid: api_uid.to_owned(),
            status: Arc::clone(&pod.status),
            life: pod.life,
            since: now,
            attempt: Attempt::None,
            word,
            compared: None,
        };
        let page = self.pages.entry(pod.uid.clone()).or_insert_with(|| fresh(None));
        let ended = pod.life == Life::Over && page.life != Life::Over;
        if page.api_uid != api_uid {
            *page = fresh(None);
        } else if !Arc::ptr_eq(&page.status, &pod.status) || ended {
            *page = fresh(page.word.take());
        }
        page
    }

    /// The API has this status now; `answer` is the object that it answered a patch with.
    pub(super) fn told(&mut self, due: &Due, answer: Option<Arc<Pod>>, now: Moment) {
        if let Some(page) = self.pages.get_mut(&due.uid)
            && page.api_uid == due.api_uid
        {
            if Arc::ptr_eq(&page.status, &due.status) && !matches!(page.attempt, Attempt::Told(_)) {
                kubelet::POD_STATUS_SYNC.observe(now.since(page.since));
            }
            page.word = Some(Word { at: now, status: Arc::clone(&due.status), answer });
        }
        self.note(due, Attempt::Told(now));
    }

    /// The API did not take it.
    pub(super) fn refused(&mut self, due: &Due, now: Moment) {
        self.note(due, Attempt::Refused(now));
    }

    /// The API has no such pod any more.
    pub(super) fn moot(&mut self, due: &Due) {
        self.note(due, Attempt::Moot);
    }

    fn note(&mut self, due: &Due, attempt: Attempt) {
        if let Some(page) = self.pages.get_mut(&due.uid)
            && Arc::ptr_eq(&page.status, &due.status)
            && page.api_uid == due.api_uid
        {
            page.attempt = attempt;
        }
    }
}

impl Page {
    /// When a status is told that was not tried yet.
    fn first_try(&self, now: Moment) -> Moment {
        match &self.word {
            Some(word) if self.life != Life::Over && !is_news(&word.status, &self.status) => word.at + GATHER,
            _ => now,
        }
    }

    /// The newest object of the API: what the watch shows, or what the API answered since.
    fn base(&mut self, shown: &Arc<Pod>) -> Option<Arc<Pod>> {
        let Some(answer) = self.word.as_mut().map(|word| &mut word.answer) else { return Some(Arc::clone(shown)) };
        match answer.as_ref().map(|answer| version(shown)?.partial_cmp(&version(answer)?)) {
            None => Some(Arc::clone(shown)),
            Some(None) => None,
            Some(Some(Ordering::Less)) => answer.clone(),
            Some(Some(_)) => {
                *answer = None;
                Some(Arc::clone(shown))
            }
        }
    }

    /// Whether the API shows another status than the one it was told.
    fn differs(&mut self, object: &Arc<Pod>) -> bool {
        match &self.compared {
            Some((compared, differs)) if Arc::ptr_eq(compared, object) => *differs,
            _ => {
                let empty = PodStatus::default();
                let differs = status::differs(object.status.as_ref().unwrap_or(&empty), &self.status);
                self.compared = Some((Arc::clone(object), differs));
                differs
            }
        }
    }
}

/// Whether somebody may wait for the step from one status to the other: another phase, or ready or not.
fn is_news(old: &PodStatus, new: &PodStatus) -> bool {
    let ready = |status: &PodStatus| {
        let conditions = status.conditions.iter().flatten();
        conditions.filter(|one| one.type_ == "Ready").any(|one| one.status == "True")
    };
    old.phase != new.phase || ready(old) != ready(new)
}

/// The version of an object. Versions of one resource are numbers that grow (KEP-5504).
fn version(pod: &Pod) -> Option<u64> {
    pod.metadata.resource_version.as_deref()?.parse().ok()
}

fn is_static_pod(pod: &PodView) -> bool {
    pod.pod.as_deref().is_some_and(is_static)
}

/// The pod's object at the API server: the mirror of a static pod, else the pod as the API last told it.
fn object_of<'v>(pod: &'v PodView, view: &'v NodeView) -> Option<&'v Arc<Pod>> {
    let of_spec = pod.pod.as_ref()?;
    if is_static(of_spec) {
        return view.mirrors.get(&pod.name).filter(|mirror| mirrors_it(mirror, of_spec));
    }
    pod.wanted.as_ref()
}

/// Whether the API waits for nothing but our word that the pod is gone.
fn may_be_deleted(pod: &PodView, object: &Pod) -> bool {
    pod.life == Life::Over && !is_static_pod(pod) && object.metadata.deletion_timestamp.is_some()
}

/// Whether the phase of an object is a last one.
pub(super) fn has_ended(object: &Pod) -> bool {
    object.status.as_ref().and_then(Phase::of).is_some_and(Phase::is_terminal)
}
