//! A request for memory, before and after rounding.

use highwater_recorder::StreamId;

use super::rounding::Rounded;

#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub(super) requested: u64,
    pub(super) rounded: Rounded,
    pub(super) stream: StreamId,
}
