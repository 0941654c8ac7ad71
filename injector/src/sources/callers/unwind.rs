// SPDX-License-Identifier: Apache-2.0
// WARM
//! From a return address to its row, by the unwind tables of its module as they lie in memory: the
//! index (`.eh_frame_hdr`) is searched in place, one entry after the other; of `.eh_frame` the one
//! description and its common part are copied and given to gimli.

use gimli::{
    BaseAddresses, CfaRule, EhFrame, EndianSlice, LittleEndian, Operation, RegisterRule, UnwindSection,
    X86_64,
};

use super::modules::Module;
use super::rows::Frame;
use crate::platform::memory::{read, u32_at};

/// Version 1; pointer to `.eh_frame` of any form; count as four bytes; a table of two signed words
/// each, relative to the index.
const TABLE_FORM: u8 = 0x3b;
const COUNT_FORM: u8 = 0x03;
/// Longest description read, bytes.
const LONGEST: u32 = 1 << 16;

type Slice<'a> = EndianSlice<'a, LittleEndian>;

/// gimli's rows without a heap: rules of all registers, and remembered states.
struct Fixed;

impl gimli::UnwindContextStorage<usize> for Fixed {
    type Rules = [(gimli::Register, RegisterRule<usize>); 32];
    type Stack = [gimli::UnwindTableRow<usize, Self>; 6];
}

/// How a function is left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Way {
    Out(Frame),
    /// Not at all: the thread, or the program, began in it.
    End,
}

/// As [`way`], as far as that is a frame.
pub(super) fn frame(module: &Module, address: u64, in_cudart: bool) -> Option<Frame> {
    match way(module, address, in_cudart)? {
        Way::Out(frame) => Some(frame),
        Way::End => None,
    }
}

/// How the frame that `address` returns to is left; `None` where its module does not say, or in a
/// way that no row can hold.
pub(super) fn way(module: &Module, address: u64, in_cudart: bool) -> Option<Way> {
    let call = address.checked_sub(1)?; // a call may be the last instruction of its function
    let (bytes, description, bases) = description(module, call)?;
    let section = EhFrame::from(EndianSlice::new(&bytes, LittleEndian));
    let found = section.fde_from_offset(&bases, description.into(), EhFrame::cie_from_offset).ok()?;
    if !found.contains(call)
        || found.is_signal_trampoline()
        || found.cie().return_address_register() != X86_64::RA
    {
        return None;
    }
    let mut context = gimli::UnwindContext::<usize, Fixed>::new_in();
    let row = found.unwind_info_for_address(&section, &bases, &mut context, call).ok()?;
    match row.register(X86_64::RA) {
        RegisterRule::Offset(-8) => {}
        RegisterRule::Undefined => return Some(Way::End),
        _ => return None,
    }
    let CfaRule::RegisterAndOffset { register, offset } = *row.cfa() else {
        return realigned(row, &section, found.cie().encoding(), in_cudart)?.checked().map(Way::Out);
    };
    let rbp_below = match row.register(X86_64::RBP) {
        RegisterRule::Undefined | RegisterRule::SameValue => 0,
        RegisterRule::Offset(at) => u32::try_from(at.checked_neg()?).ok().filter(|n| *n > 0)?,
        _ => return None,
    };
    let from_rbp = register == X86_64::RBP;
    if !from_rbp && register != X86_64::RSP {
        return None;
    }
    let offset = u32::try_from(offset).ok()?;
    Frame { from_rbp, offset, realigned: false, rbp_below, in_cudart }.checked().map(Way::Out)
}

/// A function that aligned its stack, as GCC describes it: its canonical frame address is in a word
/// below rbp (`DW_OP_breg6 -n, DW_OP_deref`), its caller's rbp in the word at rbp.
fn realigned(
    row: &gimli::UnwindTableRow<usize, Fixed>,
    section: &EhFrame<Slice<'_>>,
    encoding: gimli::Encoding,
    in_cudart: bool,
) -> Option<Frame> {
    let from_rbp = |expression: &gimli::UnwindExpression<usize>, behind: &[Operation<Slice<'_>>]| {
        let mut operations = expression.get(section).ok()?.operations(encoding);
        let Some(Operation::RegisterOffset { register: X86_64::RBP, offset, .. }) = operations.next().ok()?
        else {
            return None;
        };
        let mut rest = behind.iter();
        while let Some(operation) = operations.next().ok()? {
            rest.next().filter(|expected| **expected == operation)?;
        }
        rest.next().is_none().then_some(offset)
    };
    let word = Operation::Deref { base_type: gimli::UnitOffset(0), size: 8, space: false };
    let (CfaRule::Expression(cfa), RegisterRule::Expression(rbp)) = (row.cfa(), row.register(X86_64::RBP))
    else {
        return None;
    };
    let offset = u32::try_from(from_rbp(cfa, &[word])?.checked_neg()?).ok()?;
    let frame = Frame { from_rbp: true, offset, realigned: true, rbp_below: 0, in_cudart };
    (from_rbp(&rbp, &[])? == 0).then_some(frame)
}

/// The common part and the description of the function at `call`, one behind the other; where the
/// second begins; and the base by which its relative pointers come out right.
fn description(module: &Module, call: u64) -> Option<(Vec<u8>, usize, BaseAddresses)> {
    let inside = |at: u64| (module.from..module.to).contains(&at).then_some(at);
    let at = inside(indexed(module, call)?)?;
    let own = entry(at)?;
    let back = u32_at(&own, 4);
    let mut bytes = entry(inside((at + 4).checked_sub(u64::from(back))?)?)?;
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    let from = bytes.len();
    bytes.extend_from_slice(&own);
    // the way back to the common part, in this copy
    bytes.get_mut(from + 4..from + 8)?.copy_from_slice(&u32::try_from(from + 4).ok()?.to_le_bytes());
    let bases = BaseAddresses::default().set_eh_frame(at.wrapping_sub(from as u64)).set_text(module.base);
    Some((bytes, from, bases))
}

/// A whole entry of `.eh_frame`: four bytes of length, and as many.
fn entry(at: u64) -> Option<Vec<u8>> {
    let length = u32_at(&read(at, 4)?, 0);
    let whole = (8..=LONGEST).contains(&length).then_some(length as usize + 4)?;
    read(at, whole)
}

/// Where the description is of the last function that begins at or before `call`.
fn indexed(module: &Module, call: u64) -> Option<u64> {
    let index = module.unwind;
    let head = read(index, 12)?;
    let (frame_form, count_form, table_form) = (head.get(1)?, head.get(2)?, head.get(3)?);
    // the pointer in front of the count: 4 bytes in every linker's output
    let four = matches!(frame_form & 0x0f, 0x03 | 0x0b);
    if head.first() != Some(&1) || !four || (*count_form, *table_form) != (COUNT_FORM, TABLE_FORM) {
        return None;
    }
    let (table, count) = (index + 12, u64::from(u32_at(&head, 8)));
    let wanted = call.wrapping_sub(index) as i64;
    let (mut low, mut high) = (0, count);
    let begin = |n: u64| read(table + 8 * n, 8).map(|e| (u32_at(&e, 0) as i32, u32_at(&e, 4) as i32));
    while low < high {
        let middle = low + (high - low) / 2;
        if i64::from(begin(middle)?.0) <= wanted {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    let found = begin(low.checked_sub(1)?)?;
    Some(index.wrapping_add_signed(i64::from(found.1)))
}

#[cfg(test)]
mod tests {
    use super::super::modules::look;
    use super::super::rows::Place;
    use super::*;

    /// The return address of its caller and where it lies, with rbp, as the callback has them.
    #[cfg(target_arch = "x86_64")]
    mod here {
        extern "C" {
            pub(super) fn gapprobe_test_here(out: *mut [u64; 2]);
        }
        std::arch::global_asm!(
            ".globl gapprobe_test_here",
            ".hidden gapprobe_test_here",
            "gapprobe_test_here:",
            "mov [rdi], rsp",
            "mov [rdi + 8], rbp",
            "ret",
        );
    }

    /// Calls `f` with `data` from a frame that it aligned as GCC does.
    #[cfg(target_arch = "x86_64")]
    mod aligned {
        use std::ffi::c_void;

        extern "C" {
            pub(super) fn gapprobe_test_aligned(f: extern "C" fn(*const c_void), data: *const c_void);
        }
        std::arch::global_asm!(
            ".globl gapprobe_test_aligned",
            ".hidden gapprobe_test_aligned",
            ".type gapprobe_test_aligned,@function",
            "gapprobe_test_aligned:",
            ".cfi_startproc",
            "lea r10, [rsp + 8]",
            ".cfi_def_cfa r10, 0",
            "and rsp, -64",
            "push qword ptr [r10 - 8]",
            "push rbp",
            "mov rbp, rsp",
            ".cfi_escape 0x10, 0x6, 0x2, 0x76, 0x0",
            "push r10",
            ".cfi_escape 0xf, 0x3, 0x76, 0x78, 0x6",
            "sub rsp, 8",
            "mov rax, rdi",
            "mov rdi, rsi",
            "call rax",
            "mov r10, [rbp - 8]",
            ".cfi_def_cfa r10, 0",
            "leave",
            "lea rsp, [r10 - 8]",
            ".cfi_def_cfa rsp, 8",
            "ret",
            ".cfi_endproc",
            ".size gapprobe_test_aligned, . - gapprobe_test_aligned",
        );
    }

    #[inline(never)]
    fn deep(n: u32, f: &dyn Fn(&Place)) -> u32 {
        if n == 0 {
            let mut found = [0; 2];
            // SAFETY: writes two words.
            unsafe { here::gapprobe_test_here(&mut found) };
            f(&Place { at: found[0], rbp: found[1], through_cudart: false });
            return 1;
        }
        std::hint::black_box(deep(n - 1, f)) + 1
    }

    /// Every frame of this process down to where the thread began, against what the C library's
    /// unwinder sees.
    fn compare(place: &Place) {
        let modules = look();
        // SAFETY: a word of the calling thread's own stack, at a place that the rows name.
        let load = |at: u64| Some(unsafe { (at as *const u64).read_volatile() });
        let mut expected = [std::ptr::null_mut(); 64];
        let count = backtrace(&mut expected);
        let expected: Vec<u64> = expected[..count].iter().map(|p| *p as u64).collect();
        let (mut place, mut seen) = (*place, Vec::new());
        // the first addresses differ: they return behind the call of `here`, theirs behind ours
        while seen.len() + 4 < count {
            let address = load(place.at).unwrap();
            seen.push(address);
            let Some(frame) = modules.find(address).and_then(|m| frame(m, address, false)) else { break };
            place = place.outward(frame, load).unwrap();
        }
        let common = expected.iter().position(|a| seen.get(1) == Some(a)).expect("the same frames");
        let rest: Vec<u64> = expected[common..].iter().take(seen.len() - 1).copied().collect();
        assert_eq!(seen[1..], rest);
        assert!(seen.len() + 5 >= count && count > 25, "{} of {count}", seen.len());
    }

    #[test]
    fn the_rows_lead_where_the_unwinder_goes() {
        deep(20, &compare);
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn they_lead_through_a_frame_that_aligned_its_stack() {
        extern "C" fn inner(_: *const std::ffi::c_void) {
            deep(20, &compare);
        }
        deep(5, &|_| {
            // SAFETY: calls `inner` with a pointer that it does not look at.
            unsafe { aligned::gapprobe_test_aligned(inner, std::ptr::null()) };
        });
    }

    fn backtrace(out: &mut [*mut libc::c_void]) -> usize {
        extern "C" {
            fn backtrace(out: *mut *mut libc::c_void, size: libc::c_int) -> libc::c_int;
        }
        // SAFETY: room for that many.
        unsafe { backtrace(out.as_mut_ptr(), out.len() as libc::c_int) as usize }
    }

    #[test]
    fn addresses_without_a_description_have_no_row() {
        let modules = look();
        let libc = modules.find(libc::getpid as *const () as u64).unwrap();
        assert_eq!(frame(libc, libc.to + 100, false), None);
        assert_eq!(frame(libc, libc.from, false), None);
        assert_eq!(
            frame(&Module { unwind: 0, ..libc.clone() }, libc::getpid as *const () as u64, false),
            None
        );
        assert_eq!(frame(&Module { unwind: libc.from, ..libc.clone() }, libc.from + 5000, false), None);
    }

    /// Real tables of the driver's neighbours cannot be had here; any bytes at all must end in no
    /// row.
    #[test]
    fn made_up_tables_make_no_panic() {
        let page = crate::platform::memory::map(1 << 16, true).unwrap().as_ptr();
        // SAFETY: a mapping of our own that nobody else knows.
        let bytes = unsafe { std::slice::from_raw_parts_mut(page, 1 << 16) };
        let from = page as u64;
        let modules = look();
        let libc = modules.find(libc::getpid as *const () as u64).unwrap();
        let module = Module { from, to: from + (1 << 16), base: from, unwind: from, ..libc.clone() };
        let mut state = 7u64;
        let mut found = 0;
        for round in 0..3000 {
            for b in bytes[..2048].iter_mut() {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                *b = (state >> 33) as u8;
            }
            bytes[..12].copy_from_slice(&[1, 0x1b, 0x03, 0x3b, 0, 0, 0, 0, 1, 0, 0, 0]);
            bytes[12..20].copy_from_slice(&[0, 0, 0, 0, 100, 0, 0, 0]);
            if round % 2 == 0 {
                // a common part at 40 and a description at 100, both of a likely shape with random
                // instructions
                bytes[40..62]
                    .copy_from_slice(b"\x38\0\0\0\0\0\0\0\x01zR\0\x01\x78\x10\x01\x1b\x0c\x07\x08\x90\x01");
                bytes[62..100].fill(0);
                bytes[100..108].copy_from_slice(&[60, 0, 0, 0, 64, 0, 0, 0]);
                bytes[108..117].copy_from_slice(&[0x94, 0xff, 0xff, 0xff, 0, 1, 0, 0, 0]);
            }
            found += usize::from(frame(&module, from + 50, false).is_some());
        }
        assert!(found > 0, "none of them was read as far as its instructions");
    }
}
