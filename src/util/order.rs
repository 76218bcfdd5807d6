//! Puts lists in order and gathers maps, in few bytes of program: any thread calls it, it owns nothing, and it never takes part in
//! what is compared. The standard library's sort is made anew for each type of item and each comparison, some five kilobytes of
//! program each time; its maps, when collected, sort their items with it. The lists of a node agent are short, and its program shall
//! be: here the sort is compiled once, over places in the list, and items are moved to their places afterwards.

use std::cmp::Ordering;

/// Puts `items` in their natural order; equals keep theirs.
pub fn sort<T: Ord>(items: &mut [T]) {
    sort_by(items, T::cmp);
}

/// Puts `items` in the order of `compare`, which has to be total; equals keep theirs.
pub fn sort_by<T>(items: &mut [T], compare: impl Fn(&T, &T) -> Ordering) {
    let mut places = places(items.len(), &|left, right| match (items.get(left), items.get(right)) {
        (Some(left), Some(right)) => compare(left, right),
        _ => Ordering::Equal,
    });
    arrange(&mut places, &mut |left, right| items.swap(left, right));
}

/// Puts `items` in the order of their `key`, which is asked for at each comparison; equals keep theirs.
pub fn sort_by_key<T, K: Ord>(items: &mut [T], key: impl Fn(&T) -> K) {
    sort_by(items, |left, right| key(left).cmp(&key(right)));
}

/// `collect` for maps and sets that puts items in one by one; of equal keys the last counts, as with `collect`.
pub trait Gather: Iterator + Sized {
    /// A map or a set of all items.
    fn gather<C: Default + Extend<Self::Item>>(self) -> C {
        let mut all = C::default();
        all.extend(self);
        all
    }
}

impl<I: Iterator> Gather for I {}

/// For each place of an ordered list of `count`, where its item is now.
fn places(count: usize, compare: &dyn Fn(usize, usize) -> Ordering) -> Vec<usize> {
    let mut places: Vec<usize> = (0..count).collect();
    places.sort_by(|left, right| compare(*left, *right));
    places
}

/// Swaps items until each is at its place: `places[to]` is where the item for `to` comes from, and each swap settles one of them.
fn arrange(places: &mut [usize], swap: &mut dyn FnMut(usize, usize)) {
    for start in 0..places.len() {
        let mut to = start;
        while places[to] != start {
            let from = std::mem::replace(&mut places[to], to);
            swap(to, from);
            to = from;
        }
        places[to] = to;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::cmp::Reverse;
    use std::collections::{BTreeMap, BTreeSet};

    type Way = dyn Fn(&mut Vec<(u8, u16)>);

    proptest! {
        #[test]
        fn lists_come_into_the_order_that_the_standard_library_gives(items in prop::collection::vec((0u8..6, any::<u16>()), 0..40)) {
            let check = |ours: &Way, theirs: &Way| {
                let (mut one, mut other) = (items.clone(), items.clone());
                ours(&mut one);
                theirs(&mut other);
                assert_eq!(one, other);
            };
            check(&|items| sort(items), &|items| items.sort());
            check(&|items| sort_by_key(items, |item| item.0), &|items| items.sort_by_key(|item| item.0));
            check(&|items| sort_by(items, |a, b| b.0.cmp(&a.0)), &|items| items.sort_by_key(|item| Reverse(item.0)));
        }

        #[test]
        fn gathered_maps_and_sets_are_the_collected_ones(items in prop::collection::vec((0u8..6, any::<u16>()), 0..40)) {
            assert_eq!(items.iter().copied().gather::<BTreeMap<_, _>>(), items.iter().copied().collect::<BTreeMap<_, _>>());
            assert_eq!(items.iter().copied().gather::<BTreeSet<_>>(), items.into_iter().collect::<BTreeSet<_>>());
        }
    }
}
