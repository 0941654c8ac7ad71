// SPDX-License-Identifier: Apache-2.0
//! A large recording: a launch-bound training loop with names as PyTorch has them.

use trace::build::Builder;
use trace::call::{pack, Class, RUNTIME};
use trace::event::FROM_RECORD;
use trace::{Event, Kind};

const NAMES: &[&str] = &[
    "void at::native::vectorized_elementwise_kernel<8, at::native::bfloat16_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda(float)#1}, std::array<char*, 2ul> >(int, at::native::bfloat16_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda(float)#1}, std::array<char*, 2ul>)",
    "nvjet_sm90_tst_192x128_64x5_1x2_h_bz_coopB_NNT",
    "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float, false>(int, float, float const*, float const*, float const*, float*, float*, float*)",
    "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_15CUDAFunctor_addIfEESt5arrayIPcLm3EEEEviT0_T1_",
    "void at::native::unrolled_elementwise_kernel<at::native::CUDAFunctor_add<float>, std::array<char*, 3ul>, 4, TrivialOffsetCalculator<2, unsigned int>, TrivialOffsetCalculator<1, unsigned int>, at::native::memory::LoadWithCast<2>, at::native::memory::StoreWithCast<1> >(int, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul>, TrivialOffsetCalculator<2, unsigned int>, TrivialOffsetCalculator<1, unsigned int>, at::native::memory::LoadWithCast<2>, at::native::memory::StoreWithCast<1>)",
    "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x64_4x1x1_cga1x1x1_kernel0_0",
    "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous namespace)::TensorListMetadata<1>, at::native::(anonymous namespace)::BinaryOpScalarFunctor<float, 1, 1, 0>, std::multiplies<float>, float>(at::native::(anonymous namespace)::TensorListMetadata<1>, at::native::(anonymous namespace)::BinaryOpScalarFunctor<float, 1, 1, 0>, std::multiplies<float>, float)",
    "void at::native::reduce_kernel<128, 4, at::native::ReduceOp<c10::BFloat16, at::native::func_wrapper_t<c10::BFloat16, at::native::sum_functor<c10::BFloat16, float, c10::BFloat16>::operator()(at::TensorIterator&)::{lambda(float, float)#1}>, unsigned int, c10::BFloat16, 4, 4> >(at::native::ReduceOp<c10::BFloat16, unsigned int, c10::BFloat16, 4, 4>)",
];

/// Numbers that only look random; the same on every machine.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    /// Below `limit`.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % limit.max(1)
    }
}

/// `kernels` kernels in steps of 700, each launched by a call; every third begins while the one
/// before still runs.
pub(crate) fn recording(kernels: u64) -> Vec<u8> {
    let mut random = Random(7);
    let mut b = Builder::new();
    b.header.pid = 4242;
    b.header.host = "bench".into();
    b.header.command = "python train.py".into();
    b.header.start_realtime = 1_795_000_000_000_000_000;
    b.device(0, "NVIDIA H200", 132);
    let ids: Vec<u32> =
        (0..64).map(|i| b.kernel(NAMES[i % NAMES.len()], 32 << (i % 6), 32 + i as u32)).collect();
    // a step is always the same sequence: kernel, grid, and a duration that varies by some percent
    let step: Vec<(u32, u32, u64)> = (0..700)
        .map(|_| (ids[random.below(64) as usize], 1 + random.below(4096) as u32, 1_500 + random.below(5_000)))
        .collect();
    let first = 5_000_000_000_000u64;
    let (mut host, mut device) = (first, first);
    for i in 0..kernels {
        if i % 700 == 0 {
            let mut mark = Event::new(Kind::Step, host, host + 700 * 7_000);
            mark.a = (i / 700) as u32;
            b.on_thread(4242, mark);
        }
        let mut call = Event::new(Kind::Call, host, host + 3_000 + random.below(900));
        call.correlation = i as u32 + 1;
        call.a = pack(RUNTIME, 211);
        call.x = Class::Launch as u8;
        call.flags = FROM_RECORD;
        b.on_thread(4242, call);
        let start = (call.end + 4_000).max(device + random.below(1_000));
        let (id, grid, duration) = step[(i % 700) as usize];
        let mut kernel = Event::new(Kind::Kernel, start, start + duration + random.below(duration / 10));
        kernel.correlation = i as u32 + 1;
        kernel.a = id;
        kernel.b = grid;
        b.on_stream(0, 1, 7, kernel);
        device = if i % 3 == 0 { kernel.end - 400 } else { kernel.end };
        host = call.end + 1_000 + random.below(2_000);
    }
    b.on_recorder(Event::clock_pair(first, 1_795_000_000_000_000_000));
    b.finish()
}
