// SPDX-License-Identifier: Apache-2.0
//! How far a recording that still grows is known, and what is said of the rest.

use trace::event::Unobserved;
use trace::Header;

use crate::run::{Run, Span, UnobservedSpan};

/// How far everything is known, ns: device and host.
pub fn complete_to(header: &Header) -> u64 {
    match header.host_complete_to {
        0 => header.gpu_complete_to,
        host => header.gpu_complete_to.min(host),
    }
}

/// Nothing was recorded from `since` on, and the span had not ended when the recording was read: it
/// is unobserved until `to`, and all is known up to there. Not where the GPU's own records are
/// behind by more than a window's last ones: what they hold is not known.
pub fn unobserved_to(run: &mut Run, since: u64, to: u64, why: Unobserved) {
    let since = since.max(complete_to(&run.header)).max(run.header.valid_from);
    if run.header.host_complete_to >= to || to <= since {
        return; // it ended meanwhile, and is in the recording
    }
    run.blind.push(UnobservedSpan { span: Span::new(since, to), reason: why as u32 });
    run.blind.sort_by_key(|b| b.span.start);
    if run.header.gpu_complete_to >= run.header.host_complete_to {
        run.header.gpu_complete_to = to;
        run.header.host_complete_to = to;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(gpu: u64, host: u64) -> Run {
        let mut run = Run::default();
        (run.header.gpu_complete_to, run.header.host_complete_to) = (gpu, host);
        run
    }

    #[test]
    fn what_follows_the_last_window_is_unobserved_up_to_now() {
        let mut between = run(70, 70);
        unobserved_to(&mut between, 70, 100, Unobserved::Window);
        assert_eq!(
            between.blind,
            [UnobservedSpan { span: Span::new(70, 100), reason: Unobserved::Window as u32 }]
        );
        assert_eq!(complete_to(&between.header), 100);
        let mut window = run(70, 70);
        window.header.valid_from = 90;
        unobserved_to(&mut window, 70, 100, Unobserved::Window);
        assert_eq!(window.blind.first().map(|b| b.span), Some(Span::new(90, 100)), "of the window alone");
        let mut ended = run(100, 100);
        unobserved_to(&mut ended, 70, 100, Unobserved::Window);
        assert_eq!((ended.blind.len(), complete_to(&ended.header)), (0, 100), "the recording has it");
    }

    #[test]
    fn what_the_gpu_has_not_delivered_is_not_called_known() {
        let mut hangs = run(40, 70);
        unobserved_to(&mut hangs, 70, 100, Unobserved::Window);
        assert_eq!(complete_to(&hangs.header), 40);
        assert_eq!(hangs.blind.first().map(|b| b.span), Some(Span::new(70, 100)));
    }
}
