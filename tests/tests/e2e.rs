//! The main job, end to end. One binary, so that the real control planes are started once.

mod e2e {
    pub mod changes;
    pub mod choosing;
    pub mod filling;
    pub mod lifecycle;
    pub mod page;
    pub mod refusals;
    pub mod relocating;
}
