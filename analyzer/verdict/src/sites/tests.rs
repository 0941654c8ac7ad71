// SPDX-License-Identifier: Apache-2.0
//! Stacks as real programs have them, innermost first, and the line that is the user's.

use trace::build::Builder;
use trace::define::{Definition, FrameInfo, Language};

use super::*;

const PACKAGES: &str = "/venv/lib/python3.11/site-packages";
const LIBRARY: &str = "/usr/lib/python3.11";

/// What is said of a stack; `@` stands for site-packages, `%` for Python's library.
fn said(frames: &[(&str, &str, u32)]) -> Option<String> {
    said_in(None, frames)
}

fn said_in(directory: Option<&str>, frames: &[(&str, &str, u32)]) -> Option<String> {
    said_by(false, directory, frames)
}

/// What a kernel is said to be for.
fn said_of_kernel(frames: &[(&str, &str, u32)]) -> Option<String> {
    said_by(true, None, frames)
}

fn said_by(of_kernel: bool, directory: Option<&str>, frames: &[(&str, &str, u32)]) -> Option<String> {
    let paths: Vec<String> =
        frames.iter().map(|f| f.1.replace('@', PACKAGES).replace('%', LIBRARY)).collect();
    let frames: Vec<(&str, &str, u32)> =
        frames.iter().zip(&paths).map(|(f, path)| (f.0, path.as_str(), f.2)).collect();
    let mut b = Builder::new();
    if let Some(d) = directory {
        b.attribute(DIRECTORY, d);
    }
    let stack = b.stack(&frames);
    let run = crate::load(b.finish().as_slice()).unwrap();
    let mut sites = Sites::new(&run);
    let site = sites.known(stack, of_kernel)?;
    Some(sites.get(site).unwrap().to_string())
}

#[test]
fn item_has_no_frame_so_its_own_line_is_it() {
    let stack = [("train_step", "/home/me/gpt/train.py", 88), ("<module>", "/home/me/gpt/train.py", 140)];
    assert_eq!(said(&stack).as_deref(), Some("gpt/train.py:88 in train_step"));
    assert_eq!(said_in(Some("/home/me/gpt"), &stack).as_deref(), Some("train.py:88 in train_step"));
    assert_eq!(said_in(Some("/home/me/g"), &stack).as_deref(), Some("gpt/train.py:88 in train_step"));
}

#[test]
fn a_relative_path_counts_from_where_the_program_was_started() {
    let said = |directory, path| said_in(directory, &[("step", path, 7)]).unwrap();
    let here = Some("/home/me/gpt");
    for (path, shown) in [
        ("train.py", "train.py:7 in step"),
        ("./train.py", "train.py:7 in step"),
        ("src/deep/train.py", "src/deep/train.py:7 in step"),
        ("src/../train.py", "train.py:7 in step"),
        ("../gpt/train.py", "train.py:7 in step"),
        ("../other/train.py", "other/train.py:7 in step"),
        ("../../../../../train.py", "train.py:7 in step"),
    ] {
        assert_eq!(said(here, path), shown, "{path}");
    }
    assert_eq!(said(None, "src/deep/train.py"), "deep/train.py:7 in step", "not known where that is");
    // the file system's root is no place to count from
    assert_eq!(said(Some("/"), "src/deep/train.py"), "deep/train.py:7 in step");
}

#[test]
fn backward_is_the_line_that_calls_it() {
    let stack = [
        ("_engine_run_backward", "@/torch/autograd/graph.py", 823),
        ("backward", "@/torch/autograd/__init__.py", 347),
        ("Tensor.backward", "@/torch/_tensor.py", 581),
        ("train_step", "/home/me/gpt/train.py", 90),
        ("<module>", "/home/me/gpt/train.py", 140),
    ];
    assert_eq!(said(&stack).as_deref(), Some("gpt/train.py:90 in train_step via Tensor.backward"));
}

#[test]
fn the_wrappers_around_a_layer_are_not_told() {
    let stack = [
        ("Dropout.forward", "@/torch/nn/modules/dropout.py", 70),
        ("Module._call_impl", "@/torch/nn/modules/module.py", 1750),
        ("Module._wrapped_call_impl", "@/torch/nn/modules/module.py", 1739),
        ("Block.forward", "/home/me/gpt/model.py", 31),
        ("Module._call_impl", "@/torch/nn/modules/module.py", 1750),
        ("main", "/home/me/gpt/train.py", 12),
    ];
    assert_eq!(said(&stack).as_deref(), Some("gpt/model.py:31 in Block.forward via Dropout.forward"));
}

#[test]
fn in_lightning_a_hook_of_the_user_is_nearer_than_fit() {
    let outer = [
        ("_TrainingEpochLoop.advance", "@/lightning/pytorch/loops/training_epoch_loop.py", 269),
        ("Trainer.fit", "@/lightning/pytorch/trainer/trainer.py", 538),
        ("main", "/home/me/gpt/train.py", 40),
        ("<module>", "/home/me/gpt/train.py", 44),
    ];
    let mut inside = vec![("LitModel.training_step", "/home/me/gpt/lit.py", 27)];
    inside.extend(outer);
    assert_eq!(said(&inside).as_deref(), Some("gpt/lit.py:27 in LitModel.training_step"));
    assert_eq!(said(&outer).as_deref(), Some("gpt/train.py:40 in main via Trainer.fit"));
    let mut logs = vec![
        ("_ResultCollection.log", "@/lightning/pytorch/trainer/connectors/logger_connector/result.py", 350),
        ("LightningModule.log", "@/lightning/pytorch/core/module.py", 540),
    ];
    logs.extend(inside);
    assert_eq!(
        said(&logs).as_deref(),
        Some("gpt/lit.py:27 in LitModel.training_step via LightningModule.log")
    );
}

#[test]
fn the_trainer_of_transformers_and_its_callbacks() {
    let outer = [
        ("Trainer.train", "@/transformers/trainer.py", 2241),
        ("main", "/data/run_clm.py", 610),
        ("<module>", "/data/run_clm.py", 660),
    ];
    let mut waits = vec![("Trainer._inner_training_loop", "@/transformers/trainer.py", 2560)];
    waits.extend(outer);
    assert_eq!(said(&waits).as_deref(), Some("data/run_clm.py:610 in main via Trainer.train"));
    let mut metrics = vec![("compute_metrics", "/data/run_clm.py", 300)];
    metrics.extend(waits);
    assert_eq!(said(&metrics).as_deref(), Some("data/run_clm.py:300 in compute_metrics"));
}

#[test]
fn the_data_set_read_below_a_loader_is_the_users() {
    let stack = [
        ("open", "@/PIL/Image.py", 3465),
        ("ImageSet.__getitem__", "/data/dataset.py", 41),
        ("_MapDatasetFetcher.fetch", "@/torch/utils/data/_utils/fetch.py", 52),
        ("_SingleProcessDataLoaderIter._next_data", "@/torch/utils/data/dataloader.py", 789),
        ("_BaseDataLoaderIter.__next__", "@/torch/utils/data/dataloader.py", 733),
        ("<module>", "/data/train.py", 60),
    ];
    assert_eq!(said(&stack).as_deref(), Some("data/dataset.py:41 in ImageSet.__getitem__ via open"));
    // workers fetch: the loop's own line waits
    assert_eq!(
        said(&[
            ("Connection.poll", "%/multiprocessing/connection.py", 257),
            ("_MultiProcessingDataLoaderIter._try_get_data", "@/torch/utils/data/dataloader.py", 1251),
            ("_BaseDataLoaderIter.__next__", "@/torch/utils/data/dataloader.py", 733),
            ("<module>", "/data/train.py", 60),
        ])
        .as_deref(),
        Some("data/train.py:60 via _BaseDataLoaderIter.__next__")
    );
}

#[test]
fn notebooks_archives_and_text() {
    for (file, short) in [
        ("<ipython-input-7-0a1b>", "<ipython-input-7-0a1b>"),
        ("/tmp/ipykernel_123/2345.py", "ipykernel_123/2345.py"),
        ("/home/me/job.pyz/__main__.py", "job.pyz/__main__.py"),
        ("<stdin>", "<stdin>"),
        ("./train.py", "train.py"),
        ("train.py", "train.py"),
        ("/train.py", "train.py"),
    ] {
        let stack = [
            ("Tensor.backward", "@/torch/_tensor.py", 581),
            ("<module>", file, 3),
            ("InteractiveShell.run_code", "@/IPython/core/interactiveshell.py", 3577),
            ("<module>", "<frozen runpy>", 88),
        ];
        assert_eq!(said(&stack), Some(format!("{short}:3 via Tensor.backward")), "{file}");
    }
}

#[test]
fn a_program_that_is_installed_is_the_outermost_package() {
    let stack = [
        ("Tensor.backward", "@/torch/_tensor.py", 581),
        ("Model.loss", "@/transformers/modeling.py", 20),
        ("Loop.step", "@/mytrainer/loop.py", 77),
        ("main", "@/mytrainer/__main__.py", 12),
        ("<module>", "/venv/bin/mytrainer", 8),
    ];
    assert_eq!(said(&stack).as_deref(), Some("mytrainer/loop.py:77 in Loop.step via Model.loss"));
    let module = [
        ("main", "@/mytrainer/__main__.py", 12),
        ("_run_code", "<frozen runpy>", 88),
        ("launch", "@/accelerate/commands/launch.py", 1000),
        ("<module>", "/venv/bin/accelerate", 8),
    ];
    assert_eq!(said(&module).as_deref(), Some("mytrainer/__main__.py:12 in main"));
}

#[test]
fn threads_of_frameworks_have_no_line() {
    let pin = [
        ("_pin_memory_loop", "@/torch/utils/data/_utils/pin_memory.py", 52),
        ("Thread.run", "%/threading.py", 1012),
        ("Thread._bootstrap", "%/threading.py", 1032),
    ];
    assert_eq!(said(&pin), None);
    assert_eq!(said(&pin[1..]), None);
    assert_eq!(said(&[]), None);
}

#[test]
fn a_stack_that_was_cut_does_not_make_a_package_the_program() {
    let mut frames = vec![("fit", "@/lightning/pytorch/trainer/trainer.py", 538)];
    while frames.len() < MAX_FRAMES {
        frames.push(("deep", "@/lightning/pytorch/loops/loop.py", 1));
    }
    assert_eq!(said(&frames), None);
    assert!(said(&frames[1..]).is_some());
}

#[test]
fn names_of_functions() {
    for (name, shown) in [
        ("main.<locals>.step", "step"),
        ("<module>", ""),
        ("main.<locals>.<lambda>", "<lambda>"),
        ("Model.forward", "Model.forward"),
        ("torch_dynamo_resume_in_forward_at_88", "forward"),
        ("torch_dynamo_resume_in_forward_at_home", "torch_dynamo_resume_in_forward_at_home"),
    ] {
        assert_eq!(plain(name), shown);
    }
}

#[test]
fn one_line_that_calls_two_things_is_one_site() {
    let mut b = Builder::new();
    let line = ("step", "/home/me/train.py", 9);
    let backward = b.stack(&[("Tensor.backward", "/v/site-packages/torch/_tensor.py", 5), line]);
    let item = b.stack(&[line]);
    let other = b.stack(&[("step", "/home/me/train.py", 10)]);
    let run = crate::load(b.finish().as_slice()).unwrap();
    let mut sites = Sites::new(&run);
    let found = [backward, item, backward, other].map(|s| sites.of(s).unwrap());
    assert!(found[0] == found[1] && found[0] == found[2] && found[0] != found[3]);
    assert_eq!(sites.get(found[0]).unwrap().to_string(), "me/train.py:9 in step");
    assert_eq!((sites.of(0), sites.of(9999)), (None, None));
}

#[test]
fn without_python_the_executables_function() {
    let mut run = Run::default();
    let texts =
        ["cudaStreamSynchronize", "/usr/lib/libcudart.so.12", "_ZN3app4stepEv", "/opt/app/bin/sim", "main"];
    for (id, text) in (1..).zip(texts) {
        run.definitions.insert(id, Definition::String(text.as_bytes()));
    }
    for (id, function, file) in [(11, 1, 2), (12, 3, 4), (13, 5, 4)] {
        let frame = FrameInfo { language: Language::Native, function, file, line: 0 };
        run.definitions.insert(id, Definition::Frame(frame));
    }
    run.definitions.insert(20, Definition::Stack(&[11, 0, 0, 0, 12, 0, 0, 0, 13, 0, 0, 0]));
    let mut sites = Sites::new(&run);
    let site = sites.of(20).unwrap();
    assert_eq!(sites.get(site).unwrap().to_string(), "app::step() in bin/sim");
}

/// A frame of PyTorch's that calls a module.
const CALLED: (&str, &str, u32) = ("Module._call_impl", "@/torch/nn/modules/module.py", 1750);

#[test]
fn a_kernel_in_a_packages_model_is_for_the_packages_line() {
    let model = "@/transformers/models/llama/modeling_llama.py";
    let outer =
        [("Trainer.training_step", "@/transformers/trainer.py", 3700), ("main", "/home/me/gpt/train.py", 31)];
    let inner = [("Linear.forward", "@/torch/nn/modules/linear.py", 125), CALLED];
    let forward = [("LlamaMLP.forward", model, 177), CALLED, ("LlamaModel.forward", model, 400), CALLED];
    let stack = [&inner[..], &forward[..], &outer[..]].concat();
    let line = "llama/modeling_llama.py:177 in LlamaMLP.forward via Linear.forward";
    assert_eq!(said_of_kernel(&stack).as_deref(), Some(line));
    assert_eq!(said(&stack).as_deref(), Some("gpt/train.py:31 in main via Trainer.training_step"));
    // in no module: the line that could be changed
    let step = [&[("AdamW.step", "@/torch/optim/adamw.py", 220)][..], &outer[..]].concat();
    assert_eq!(said_of_kernel(&step), said(&step));
}

#[test]
fn a_kernel_of_a_packages_function_is_for_the_line_of_the_module_that_calls_it() {
    let stack = [
        ("rearrange", "@/einops/einops.py", 600),
        ("Attention.forward", "/home/me/gpt/model.py", 44),
        CALLED,
        ("LlamaModel.forward", "@/transformers/models/llama/modeling_llama.py", 400),
        CALLED,
        ("main", "/home/me/gpt/train.py", 31),
    ];
    let line = "gpt/model.py:44 in Attention.forward via rearrange";
    assert_eq!(said_of_kernel(&stack).as_deref(), Some(line));
    let without = [&stack[..1], &stack[2..]].concat();
    assert_eq!(said_of_kernel(&without).as_deref(), Some("einops/einops.py:600 in rearrange"));
}
