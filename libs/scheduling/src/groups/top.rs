//! The few best of many, in order.

/// The `N` items with the largest scores, the largest first; among equals the one that was offered first.
#[derive(Clone, Copy, Debug)]
pub(super) struct Top<T, const N: usize> {
    scores: [f32; N],
    items: [Option<T>; N],
}

impl<T: Copy, const N: usize> Top<T, N> {
    /// Nothing yet; only scores larger than `floor` are taken.
    pub const fn above(floor: f32) -> Self {
        Self { scores: [floor; N], items: [None; N] }
    }

    /// What a score has to exceed to be among the best.
    #[inline]
    pub fn needed(&self) -> f32 {
        self.scores[N - 1]
    }

    /// Keeps an item if it is among the best so far.
    #[inline]
    pub fn offer(&mut self, score: f32, item: T) {
        if score > self.needed() {
            let mut at = N - 1;
            while at > 0 && self.scores[at - 1] < score {
                (self.scores[at], self.items[at]) = (self.scores[at - 1], self.items[at - 1]);
                at -= 1;
            }
            (self.scores[at], self.items[at]) = (score, Some(item));
        }
    }

    /// Offers what is among the best of some others, each as another item.
    #[inline]
    pub fn offer_all<U: Copy>(&mut self, others: &Top<U, N>, mut of: impl FnMut(U) -> T) {
        for (score, item) in others.scores.iter().zip(others.items) {
            // No other one has a larger score than those before it.
            let Some(item) = item.filter(|_| *score > self.needed()) else { return };
            self.offer(*score, of(item));
        }
    }

    /// The best items, the best first.
    pub fn items(self) -> impl Iterator<Item = T> {
        self.items.into_iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn top_keeps_the_largest_scores_in_order_and_the_first_of_equals() {
        let mut rng = fastrand::Rng::with_seed(2);
        for count in 0..60 {
            let scores: Vec<f32> = (0..count).map(|_| f32::from(rng.u8(0..20))).collect();
            let mut top = Top::<usize, 4>::above(5.0);
            scores.iter().enumerate().for_each(|(n, score)| top.offer(*score, n));
            let mut all: Vec<usize> = (0..count).filter(|n| scores[*n] > 5.0).collect();
            all.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]));
            all.truncate(4);
            assert_eq!(top.items().collect::<Vec<_>>(), all, "{scores:?}");
        }
    }
}
