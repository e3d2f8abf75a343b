//! Limits of what a text may expand to.
//!
//! A text of 10 KB can name 10⁹ values, because an alias (`*name`) repeats a whole subtree. Each value that a reader makes is charged
//! here before it is made.

/// How much a text may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Mappings, lists and scalars, each repetition by an alias included.
    pub nodes: usize,
    /// Bytes of all scalars that aliases repeat.
    pub repeated_bytes: usize,
    /// Mappings and lists inside each other.
    pub depth: usize,
}

impl Limits {
    /// For manifests and values. All custom resource definitions of a large operator have about 100,000 nodes. JSON readers allow
    /// 128 levels, and an object is sent on inside other JSON.
    pub const MANIFESTS: Self = Self { nodes: 500_000, repeated_bytes: 16 << 20, depth: 100 };
    /// For kubeconfigs.
    pub const KUBECONFIG: Self = Self { nodes: 20_000, repeated_bytes: 1 << 20, depth: 30 };
}

/// The limit that a text exceeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Exceeded {
    /// Too many nodes.
    #[error("it has more than {0} values, counting each use of an alias")]
    Nodes(usize),
    /// Aliases repeat too much text.
    #[error("its aliases repeat more than {0} bytes")]
    Bytes(usize),
    /// Nested too deeply.
    #[error("it is nested more than {0} levels deep")]
    Depth(usize),
}

/// What has been made of a text so far.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    limits: Limits,
    nodes: usize,
    repeated: usize,
}

impl Budget {
    pub(crate) fn new(limits: Limits) -> Self {
        Self { limits, nodes: 0, repeated: 0 }
    }

    pub(crate) fn nodes(&self) -> usize {
        self.nodes
    }

    /// One more value at this depth.
    pub(crate) fn node(&mut self, depth: usize) -> Result<(), Exceeded> {
        self.nested(depth)?;
        self.nodes += 1;
        if self.nodes > self.limits.nodes { Err(Exceeded::Nodes(self.limits.nodes)) } else { Ok(()) }
    }

    /// An alias repeats a value of this size.
    pub(crate) fn alias(&mut self, nodes: usize, bytes: usize, deepest: usize) -> Result<(), Exceeded> {
        self.nested(deepest)?;
        self.nodes = self.nodes.saturating_add(nodes);
        self.repeated = self.repeated.saturating_add(bytes);
        if self.nodes > self.limits.nodes {
            Err(Exceeded::Nodes(self.limits.nodes))
        } else if self.repeated > self.limits.repeated_bytes {
            Err(Exceeded::Bytes(self.limits.repeated_bytes))
        } else {
            Ok(())
        }
    }

    fn nested(&self, depth: usize) -> Result<(), Exceeded> {
        if depth > self.limits.depth { Err(Exceeded::Depth(self.limits.depth)) } else { Ok(()) }
    }
}
