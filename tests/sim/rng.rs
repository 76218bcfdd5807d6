//! The simulation's dice: a small seeded generator, so that a seed alone brings a run back.

/// xorshift64*; never zero inside.
pub(super) struct Rng(u64);

impl Rng {
    pub(super) fn new(seed: u64) -> Self {
        // Neighbouring seeds shall not begin alike.
        Self((seed ^ 0x9e37_79b9_7f4a_7c15).wrapping_mul(0xbf58_476d_1ce4_e5b9) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11
    }

    /// A number below `end`; 0 if that is 0.
    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    /// True in `per_mille` of a thousand cases.
    pub(super) fn chance(&mut self, per_mille: u64) -> bool {
        self.below(1000) < per_mille
    }

    /// One of them; `None` if there are none.
    pub(super) fn pick<T>(&mut self, from: impl IntoIterator<Item = T>) -> Option<T> {
        let mut all: Vec<T> = from.into_iter().collect();
        let index = self.below(all.len() as u64) as usize;
        (index < all.len()).then(|| all.swap_remove(index))
    }
}
