//! NCCL collectives of several ranks, only one of which is simulated. The others are assumed to send the same values.
#![expect(unsafe_code, reason = "exports functions under NVIDIA's names")]

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::{c_char, c_int};
use std::sync::{LazyLock, Mutex, PoisonError};

use crate::abi::{Out, SUCCESS, Status, answer, functions, give, new_handle, refuses, succeeds};
use crate::contents;
use crate::devices::current;

/// `ncclInvalidArgument`.
const INVALID_ARGUMENT: Status = 4;

#[derive(Clone, Copy)]
struct Communicator {
    ranks: usize,
    rank: usize,
    device: usize,
}

static COMMUNICATORS: LazyLock<Mutex<HashMap<usize, Communicator>>> = LazyLock::new(Mutex::default);

/// The groups into which communicators are split, as reported by the Python package: the number of ranks and this
/// process's rank, by color and for the next split.
#[derive(Default)]
struct Splits {
    of_color: HashMap<c_int, (c_int, c_int)>,
    next: Option<(c_int, c_int)>,
}

static SPLITS: LazyLock<Mutex<Splits>> = LazyLock::new(Mutex::default);

/// The color of a rank that is in no group.
const NO_COLOR: c_int = -1;

fn of(communicator: usize) -> Option<Communicator> {
    COMMUNICATORS.lock().unwrap_or_else(PoisonError::into_inner).get(&communicator).copied()
}

fn create(out: Out<'_, usize>, ranks: c_int, rank: c_int) -> Status {
    let (Ok(ranks), Ok(rank)) = (usize::try_from(ranks), usize::try_from(rank)) else { return INVALID_ARGUMENT };
    let handle = new_handle();
    let made = Communicator { ranks, rank, device: current() };
    COMMUNICATORS.lock().unwrap_or_else(PoisonError::into_inner).insert(handle, made);
    give(out, handle);
    SUCCESS
}

fn with(communicator: usize, out: Out<'_, c_int>, value: impl Fn(Communicator) -> usize) -> Status {
    let Some(known) = of(communicator) else { return INVALID_ARGUMENT };
    give(out, value(known) as c_int);
    SUCCESS
}

/// Number of bytes of an element, by `ncclDataType_t`.
fn element_bytes(dtype: c_int) -> usize {
    match dtype {
        4 | 5 | 8 => 8,
        2 | 3 | 7 => 4,
        6 | 9 => 2,
        _ => 1,
    }
}

/// Copies the known contents of device memory.
fn copy(to: usize, from: usize, bytes: usize) {
    if to != from {
        match contents::read(from, bytes) {
            Some(known) => contents::written(to, &known),
            None => contents::forget(to, bytes),
        }
    }
}

/// Several broadcasts in one group, of which this rank sends one and receives the others: an all-gather of pieces of
/// different sizes.
#[derive(Default)]
struct Group {
    depth: usize,
    sent: Option<(usize, usize)>,
    received: Vec<(usize, usize)>,
}

thread_local! {
    static GROUP: RefCell<Group> = RefCell::default();
}

fn end_group() {
    let ended = GROUP.with_borrow_mut(|group| {
        group.depth = group.depth.saturating_sub(1);
        (group.depth == 0).then(|| std::mem::take(group))
    });
    let Some(Group { sent: Some((from, sent)), received, .. }) = ended else { return };
    received.iter().filter(|(_, bytes)| *bytes <= sent).for_each(|(to, bytes)| copy(*to, from, *bytes));
}

fn broadcast(from: usize, to: usize, bytes: usize, root: c_int, communicator: usize) -> Status {
    let Some(known) = of(communicator) else { return INVALID_ARGUMENT };
    GROUP.with_borrow_mut(|group| {
        if root as usize == known.rank {
            group.sent = Some((from, bytes));
        } else if group.depth > 0 {
            group.received.push((to, bytes));
        }
    });
    copy(to, from, bytes);
    SUCCESS
}

/// The id of a communicator, which is passed by value.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct UniqueId([u8; 128]);

functions! {
    fn ncclGetVersion(version: Out<'_, c_int>) { give(version, 23_007) }
    fn ncclGetUniqueId(id: Out<'_, UniqueId>) { give(id, UniqueId([7; 128])) }
    fn ncclGetErrorString(status: Status) -> *const c_char {
        if status == SUCCESS { c"no error".as_ptr() } else { c"not supported by the simulated GPU".as_ptr() }
    }
    fn ncclGetLastError() -> *const c_char { c"".as_ptr() }

    fn ncclCommInitRank(out: Out<'_, usize>, ranks: c_int, _id: UniqueId, rank: c_int) { create(out, ranks, rank) }
    fn ncclCommInitRankConfig(out: Out<'_, usize>, ranks: c_int, _id: UniqueId, rank: c_int) { create(out, ranks, rank) }
    fn ncclCommInitRankScalable(out: Out<'_, usize>, ranks: c_int, rank: c_int) { create(out, ranks, rank) }
    fn ncclCommSplit(communicator: usize, color: c_int, _key: c_int, out: Out<'_, usize>) {
        let Some(known) = of(communicator) else { return INVALID_ARGUMENT };
        if color == NO_COLOR {
            give(out, 0);
            return SUCCESS;
        }
        let mut splits = SPLITS.lock().unwrap_or_else(PoisonError::into_inner);
        let next = splits.next.take();
        let (ranks, rank) =
            splits.of_color.get(&color).copied().or(next).unwrap_or((known.ranks as c_int, known.rank as c_int));
        drop(splits);
        create(out, ranks, rank)
    }
    /// Sets the group of the next communicator split: `ranks` ranks, with this process as `rank`. If `color` is not -1,
    /// applies to every split with this color. NCCL itself would query the other ranks.
    fn highwater_simulate_split(color: c_int, ranks: c_int, rank: c_int) {
        let mut splits = SPLITS.lock().unwrap_or_else(PoisonError::into_inner);
        if color == NO_COLOR {
            splits.next = Some((ranks, rank));
        } else {
            splits.of_color.insert(color, (ranks, rank));
        }
    }
    fn ncclCommCount(communicator: usize, out: Out<'_, c_int>) { with(communicator, out, |known| known.ranks) }
    fn ncclCommUserRank(communicator: usize, out: Out<'_, c_int>) { with(communicator, out, |known| known.rank) }
    fn ncclCommCuDevice(communicator: usize, out: Out<'_, c_int>) { with(communicator, out, |known| known.device) }
    fn ncclCommGetAsyncError(_communicator: usize, error: Out<'_, Status>) { give(error, SUCCESS) }
    fn ncclCommDestroy(communicator: usize) {
        COMMUNICATORS.lock().unwrap_or_else(PoisonError::into_inner).remove(&communicator);
    }
    fn ncclCommAbort(communicator: usize) { ncclCommDestroy(communicator) }
    fn ncclCommRegister(_communicator: usize, _buffer: usize, _bytes: usize, handle: Out<'_, usize>) {
        give(handle, new_handle());
    }
    fn ncclCommMemStats(_communicator: usize, _kind: c_int, value: Out<'_, u64>) { give(value, 0) }

    fn ncclGroupStart() { GROUP.with_borrow_mut(|group| group.depth += 1) }
    fn ncclGroupEnd() { end_group() }

    fn ncclAllReduce(from: usize, to: usize, count: usize, dtype: c_int) {
        copy(to, from, count.saturating_mul(element_bytes(dtype)));
    }
    fn ncclReduce(from: usize, to: usize, count: usize, dtype: c_int) { ncclAllReduce(from, to, count, dtype) }
    fn ncclBroadcast(from: usize, to: usize, count: usize, dtype: c_int, root: c_int, communicator: usize) {
        broadcast(from, to, count.saturating_mul(element_bytes(dtype)), root, communicator)
    }
    fn ncclBcast(buffer: usize, count: usize, dtype: c_int, root: c_int, communicator: usize) {
        broadcast(buffer, buffer, count.saturating_mul(element_bytes(dtype)), root, communicator)
    }
    fn ncclAllGather(from: usize, to: usize, count: usize, dtype: c_int, communicator: usize) {
        let Some(known) = of(communicator) else { return INVALID_ARGUMENT };
        let bytes = count.saturating_mul(element_bytes(dtype));
        (0..known.ranks).for_each(|rank| copy(to.wrapping_add(rank.wrapping_mul(bytes)), from, bytes));
        SUCCESS
    }
    fn ncclReduceScatter(from: usize, to: usize, count: usize, dtype: c_int, _op: c_int, communicator: usize) {
        let Some(known) = of(communicator) else { return INVALID_ARGUMENT };
        let bytes = count.saturating_mul(element_bytes(dtype));
        copy(to, from.wrapping_add(known.rank.wrapping_mul(bytes)), bytes);
        SUCCESS
    }
    fn ncclRedOpCreatePreMulSum(op: Out<'_, c_int>) { give(op, 5) }

    fn ncclMemAlloc(address: Out<'_, usize>, bytes: usize) { crate::memory::allocate(address, bytes) }
    fn ncclMemFree(address: usize) { crate::memory::free(address) }
}

// The data of other ranks is unknown: receiving writes nothing.
succeeds! {
    ncclSend ncclRecv ncclAlltoAll ncclGather ncclScatter ncclCommFinalize ncclCommDeregister ncclRedOpDestroy
    ncclGroupSimulateEnd
}

refuses! { ncclCommWindowRegister ncclCommWindowDeregister ncclDevCommCreate ncclDevCommDestroy }

#[cfg(test)]
mod tests {
    use std::mem::MaybeUninit;

    use super::*;

    #[test]
    fn a_communicator_is_split_into_the_groups_that_are_noted() {
        let mut communicator = MaybeUninit::new(0);
        ncclCommInitRank(Some(&mut communicator), 8, UniqueId([0; 128]), 5);
        // SAFETY: initialized above.
        let whole = unsafe { communicator.assume_init() };
        let split = |color| {
            let (mut part, mut ranks, mut rank) = (MaybeUninit::new(0), MaybeUninit::new(-1), MaybeUninit::new(-1));
            assert_eq!(ncclCommSplit(whole, color, 0, Some(&mut part)), SUCCESS);
            // SAFETY: initialized above.
            let part = unsafe { part.assume_init() };
            ncclCommCount(part, Some(&mut ranks));
            ncclCommUserRank(part, Some(&mut rank));
            // SAFETY: initialized above.
            (part, unsafe { (ranks.assume_init(), rank.assume_init()) })
        };
        highwater_simulate_split(77, 4, 2);
        highwater_simulate_split(NO_COLOR, 2, 1);
        assert_eq!(split(3).1, (2, 1), "the next one");
        assert_eq!((split(77).1, split(77).1), ((4, 2), (4, 2)));
        assert_eq!(split(3).1, (8, 5), "nothing is known");
        assert_eq!(split(NO_COLOR).0, 0, "in none of the groups");
    }

    #[test]
    fn every_rank_has_the_values_of_this_one() {
        let mut communicator = MaybeUninit::new(0);
        ncclCommInitRank(Some(&mut communicator), 3, UniqueId([0; 128]), 1);
        // SAFETY: initialized above.
        let communicator = unsafe { communicator.assume_init() };
        let base = 1 << 45;
        contents::written(base, &[1, 2]);
        ncclAllGather(base, base + 100, 1, 6, communicator);
        assert_eq!(contents::read(base + 104, 2), Some(vec![1, 2]));
        // An all-gather as a group of broadcasts, of which this rank sends the second.
        ncclGroupStart();
        for rank in 0..3 {
            ncclBroadcast(if rank == 1 { base } else { 0 }, base + 200 + 2 * rank as usize, 1, 6, rank, communicator);
        }
        ncclGroupEnd();
        assert_eq!(
            (0..3).map(|rank| contents::read(base + 200 + 2 * rank, 2)).collect::<Vec<_>>(),
            vec![Some(vec![1, 2]); 3]
        );
        assert_eq!(
            (ncclCommDestroy(communicator), ncclAllGather(0, 0, 1, 6, communicator)),
            (SUCCESS, INVALID_ARGUMENT)
        );
    }
}
