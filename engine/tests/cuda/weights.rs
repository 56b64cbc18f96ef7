//! Weights: parameters on a device load from files and are saved to them.

use highwater_engine::nn::{Loading, Parameter, Source, load_safetensors, load_safetensors_with, save_safetensors};
use highwater_engine::{DType, Device, Tensor};
use highwater_recorder::ScopeId;

use crate::harness::on_both;

fn named(path: &str, tensor: Tensor) -> Parameter {
    Parameter { path: path.to_owned(), scope: ScopeId::NONE, tensor }
}

/// Parameters of several types, one more than is held in memory at a time while reading, one of them a view.
fn parameters(device: &Device, shift: f64) -> Vec<Parameter> {
    let count = |elements: usize, dtype| Tensor::arange(elements, shift, 0.5, dtype, device).expect("there is memory");
    let table = count(20, DType::F32).reshape([4, 5]).expect("as many");
    vec![
        named("large", count(70_000, DType::F32)),
        named("brain", count(33, DType::Bf16)),
        named("half", count(7, DType::F16)),
        named("whole", Tensor::from_slice(&[shift as i64, -1, 1 << 60], 3, device).expect("there is memory")),
        named("empty", Tensor::zeros([0, 3], DType::F32, device).expect("nothing is needed")),
        named("columns", table.narrow(1, 1, 3).expect("a view")),
        named("turned", count(6, DType::F64).reshape([2, 3]).and_then(|it| it.transpose(0, 1)).expect("a view")),
    ]
}

fn numbers(parameters: &[Parameter]) -> Vec<Vec<f64>> {
    parameters.iter().map(|parameter| parameter.tensor.to_f64_vec().expect("numbers")).collect()
}

#[test]
fn what_one_device_saves_the_other_loads() {
    on_both(|both| {
        let folder = tempfile::tempdir().expect("a folder");
        let (of_cpu, of_cuda) = (folder.path().join("cpu.safetensors"), folder.path().join("cuda.safetensors"));
        save_safetensors(&parameters(&both.cpu, 3.0), &of_cpu).expect("a file");
        let there = on_cuda(both, 100.0);
        let before = both.cuda.allocator().stats().requested_bytes.all;
        load_safetensors(&there, &of_cpu).expect("it fits");
        save_safetensors(&there, &of_cuda).expect("a file");
        assert_eq!(both.cuda.allocator().stats().requested_bytes.all, before, "no memory but the parameters'");
        assert_eq!(numbers(&there), numbers(&parameters(&both.cpu, 3.0)));
        assert!(std::fs::read(of_cpu).expect("a file") == std::fs::read(of_cuda).expect("a file"));
    });
}

/// The same as views of the same memory on the CUDA device.
fn on_cuda(both: &crate::harness::Both, shift: f64) -> Vec<Parameter> {
    let moved = |parameter: Parameter| {
        let tensor = parameter.tensor;
        let view = |tensor: &Tensor| match &*parameter.path {
            "columns" => tensor.narrow(1, 1, 3).expect("a view"),
            "turned" => tensor.transpose(0, 1).expect("a view"),
            _ => tensor.clone(),
        };
        let whole = match &*parameter.path {
            "columns" => Tensor::zeros([4, 5], DType::F32, &both.cuda).expect("there is memory"),
            "turned" => Tensor::zeros([2, 3], DType::F64, &both.cuda).expect("there is memory"),
            _ => tensor.to_device(&both.cuda).expect("there is memory"),
        };
        named(&parameter.path, view(&whole))
    };
    parameters(&both.cpu, shift).into_iter().map(moved).collect()
}

#[test]
fn numbers_are_converted_and_transposed_on_the_way_and_neighbours_stay() {
    on_both(|both| {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("file.safetensors");
        let stored = Tensor::arange(6, 0.0, 1.0, DType::F64, &both.cpu).and_then(|it| it.reshape([2, 3])).expect("six");
        save_safetensors(&[named("turned", stored)], &file).expect("a file");
        let whole = Tensor::full([3, 4], 9.0, DType::Bf16, &both.cuda).expect("there is memory");
        let inner = whole.narrow(1, 1, 2).expect("a view");
        let source = |_: &str| Some(Source::transposed("turned"));
        let loading = Loading { converts: true, source: &source, ..Loading::default() };
        load_safetensors_with(&[named("inner", inner)], &file, loading).expect("it fits");
        let expected = [9.0, 0.0, 3.0, 9.0, 9.0, 1.0, 4.0, 9.0, 9.0, 2.0, 5.0, 9.0];
        assert_eq!(whole.to_f64_vec().expect("numbers"), expected);
    });
}
