//! Weights: what is saved loads again, Python's files load, and strange files are told what is wrong with them.

use std::path::{Path, PathBuf};

use highwater_engine::dtype::Truth;
use highwater_engine::nn::{
    BatchNorm2d, Init, Linear, Loading, Module, Parameter, Source, load_safetensors, load_safetensors_with,
    save_safetensors,
};
use highwater_engine::{DType, Device, Rng, Tensor};
use highwater_recorder::ScopeId;
use tempfile::TempDir;

/// Written by `data/safetensors/make_python.py`.
const PYTHON: &[u8] = include_bytes!("data/safetensors/python.safetensors");

fn named(path: &str, tensor: Tensor) -> Parameter {
    Parameter { path: path.to_owned(), scope: ScopeId::NONE, tensor }
}

/// A parameter of zeros for each tensor of Python's file.
fn pythons(device: &Device) -> Vec<Parameter> {
    let zeros = |shape: &[usize], dtype| match *shape {
        [] => Tensor::zeros((), dtype, device),
        [length] => Tensor::zeros(length, dtype, device),
        [rows, columns] => Tensor::zeros([rows, columns], dtype, device),
        _ => panic!("no more than two axes"),
    };
    let shapes: [(&str, &[usize], DType); 8] = [
        ("double", &[2, 3], DType::F64),
        ("layer.single", &[4], DType::F32),
        ("layer.half", &[2, 1], DType::F16),
        ("layer.brain", &[3], DType::Bf16),
        ("whole", &[], DType::I64),
        ("bytes", &[5], DType::U8),
        ("truths", &[3], DType::Bool),
        ("empty", &[0, 7], DType::F32),
    ];
    shapes.map(|(path, shape, dtype)| named(path, zeros(shape, dtype).unwrap())).to_vec()
}

fn file(folder: &TempDir, bytes: &[u8]) -> PathBuf {
    let path = folder.path().join("model.safetensors");
    std::fs::write(&path, bytes).unwrap();
    path
}

fn assert_pythons(parameters: &[Parameter]) {
    let tensor = |path: &str| &parameters.iter().find(|parameter| parameter.path == path).unwrap().tensor;
    assert_eq!(tensor("double").to_vec::<f64>().unwrap(), [1.5, -2.0, 1e300, 0.0, 0.1, 3.0]);
    assert_eq!(tensor("layer.single").to_vec::<f32>().unwrap(), [0.5, -1.25, 3e38, 0.1]);
    assert_eq!(tensor("layer.half").to_f64_vec().unwrap(), [0.5, 65504.0]);
    assert_eq!(tensor("layer.brain").to_f64_vec().unwrap()[..2], [1.0, -2.0]);
    assert_eq!(tensor("whole").to_vec::<i64>().unwrap(), [-(1 << 53) - 1], "no fraction could hold it");
    assert_eq!(tensor("bytes").to_vec::<u8>().unwrap(), [0, 1, 2, 3, 4]);
    assert_eq!(tensor("truths").to_vec::<Truth>().unwrap(), [true, false, true].map(Truth::from));
    assert_eq!(tensor("empty").elements(), 0);
}

#[test]
fn a_file_of_pythons_loads_and_survives_the_way_out_and_in_in_every_type() {
    let (device, folder) = (Device::cpu(), TempDir::new().unwrap());
    let parameters = pythons(&device);
    let before = device.allocator().stats().requested_bytes.all;
    load_safetensors(&parameters, file(&folder, PYTHON)).unwrap();
    assert_pythons(&parameters);
    let again = folder.path().join("again.safetensors");
    save_safetensors(&parameters, &again).unwrap();
    assert_eq!(device.allocator().stats().requested_bytes.all, before, "nothing is allocated on the device");
    let others = pythons(&device);
    load_safetensors(&others, &again).unwrap();
    assert_pythons(&others);
    save_safetensors(&others, &again).unwrap();
    let names: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names.len(), 2, "no partial file stays: {names:?}");
}

#[test]
fn a_model_of_several_pieces_survives_the_way_out_and_in() {
    let (device, folder) = (Device::cpu(), TempDir::new().unwrap());
    let path = folder.path().join("model.safetensors");
    let layer = |seed| Linear::new(&mut Init::new(&device, DType::F32, seed), [300, 500]).unwrap();
    let (one, other) = (layer(1), layer(2));
    save_safetensors(&one.parameters(), &path).unwrap();
    load_safetensors(&other.parameters(), &path).unwrap();
    for (one, other) in one.parameters().iter().zip(other.parameters()) {
        assert_eq!(one.tensor.to_vec::<f32>().unwrap(), other.tensor.to_vec::<f32>().unwrap(), "{}", one.path);
        assert!(other.tensor.requires_grad());
    }
}

#[test]
fn names_are_mapped_matrices_transposed_and_types_changed_when_asked() {
    let (device, folder) = (Device::cpu(), TempDir::new().unwrap());
    let path = folder.path().join("gpt2.safetensors");
    let conv = Tensor::randn([200, 500], DType::F32, &device, &mut Rng::new(1)).unwrap();
    let bias = Tensor::randn(500, DType::F16, &device, &mut Rng::new(2)).unwrap();
    let mask = Tensor::ones([1, 1], DType::Bool, &device).unwrap();
    let stored = [
        named("h.0.attn.c_attn.weight", conv.clone()),
        named("h.0.attn.c_attn.bias", bias.clone()),
        named("h.0.attn.mask", mask),
    ];
    save_safetensors(&stored, &path).unwrap();
    let zeros = |shape: [usize; 2], dtype| Tensor::zeros(shape, dtype, &device).unwrap();
    let model = [
        named("blocks.0.qkv.weight", zeros([500, 200], DType::Bf16)),
        named("blocks.0.qkv.bias", Tensor::zeros(500, DType::F32, &device).unwrap()),
        named("head.lora", zeros([2, 2], DType::F32)),
    ];
    let source = |path: &str| {
        let name = path.replace("blocks.", "h.").replace("qkv", "attn.c_attn");
        match path.rsplit('.').next() {
            Some("lora") => None,
            Some("weight") => Some(Source::transposed(name)),
            _ => Some(Source::named(name)),
        }
    };
    let strict = Loading { source: &source, ..Loading::default() };
    let refusal = load_safetensors_with(&model, &path, strict).unwrap_err().to_string();
    assert!(refusal.contains("nothing takes its h.0.attn.mask"), "{refusal}");
    let narrow = "blocks.0.qkv.weight is of type f32 in the file and bf16 in the model; allow `converts`";
    assert!(refusal.contains(narrow), "{refusal}");
    assert!(model[0].tensor.to_f64_vec().unwrap().iter().all(|&number| number == 0.0), "nothing was changed");
    let loading = Loading { converts: true, ignores_unexpected: true, ..strict };
    load_safetensors_with(&model, &path, loading).unwrap();
    let expected = conv.transpose(0, 1).unwrap().to_dtype(DType::Bf16).unwrap();
    assert_eq!(model[0].tensor.to_f64_vec().unwrap(), expected.to_f64_vec().unwrap());
    assert_eq!(model[1].tensor.to_f64_vec().unwrap(), bias.to_f64_vec().unwrap());
    let bad = |path: &str| Some(Source::transposed(path));
    let vector = [named("h.0.attn.c_attn.bias", bias)];
    let loading = Loading { ignores_unexpected: true, source: &bad, ..Loading::default() };
    let refusal = load_safetensors_with(&vector, &path, loading).unwrap_err().to_string();
    assert!(refusal.contains("is to be transposed, but it has shape [500]; give matrices"), "{refusal}");
}

#[test]
fn what_does_not_fit_is_named_all_at_once() {
    let (device, folder) = (Device::cpu(), TempDir::new().unwrap());
    let path = file(&folder, PYTHON);
    let mut parameters = pythons(&device);
    parameters.retain(|parameter| parameter.path != "whole");
    parameters.push(named("lost", Tensor::zeros(2, DType::F32, &device).unwrap()));
    let single = parameters.iter_mut().find(|parameter| parameter.path == "layer.single").unwrap();
    single.tensor = Tensor::zeros([2, 2], DType::F32, &device).unwrap();
    let refusal = load_safetensors(&parameters, &path).unwrap_err().to_string();
    for part in [
        "load_safetensors: ",
        "model.safetensors: ",
        "it lacks lost",
        "nothing takes its whole",
        "layer.single has shape [4] in the file and [2, 2] in the model",
    ] {
        assert!(refusal.contains(part), "{part}: {refusal}");
    }
    let many: Vec<Parameter> =
        (0..20).map(|i| named(&format!("p{i}"), Tensor::zeros(1, DType::F32, &device).unwrap())).collect();
    let refusal = load_safetensors(&many, &path).unwrap_err().to_string();
    let missing = refusal.split_once("it lacks ").map_or("", |(_, names)| names);
    assert!(missing.contains("p7 and 12 more") && !missing.contains("p8"), "{refusal}");
    let loading = Loading { keeps_missing: true, ignores_unexpected: true, ..Loading::default() };
    load_safetensors_with(&many, &path, loading).unwrap();
    let refusal = load_safetensors(&many, Path::new("nowhere.safetensors")).unwrap_err().to_string();
    assert!(refusal.contains("nowhere.safetensors"), "{refusal}");
}

#[test]
fn a_device_without_values_checks_the_file_and_saves_none() {
    let (device, folder) = (Device::accounting(1 << 30), TempDir::new().unwrap());
    let path = file(&folder, PYTHON);
    load_safetensors(&pythons(&device), &path).unwrap();
    assert!(
        load_safetensors(&pythons(&device)[1..], &path).unwrap_err().to_string().contains("nothing takes its double")
    );
    assert!(save_safetensors(&pythons(&device), &path).is_err());
    assert_eq!(std::fs::read(&path).unwrap(), PYTHON, "what was there stays");
    let cpu = Device::cpu();
    let twice = [0, 1].map(|_| named("p", Tensor::zeros(1, DType::F32, &cpu).unwrap()));
    assert!(save_safetensors(&twice, &path).unwrap_err().to_string().contains("two parameters have the path p"));
    assert_eq!(std::fs::read(&path).unwrap(), PYTHON);
}

/// A file of one tensor of f32 whose header says what it says.
fn one(says: &str, numbers: usize) -> Vec<u8> {
    let text = format!("{{\"p\":{{{says}}}}}");
    let mut bytes = (text.len() as u64).to_le_bytes().to_vec();
    bytes.extend(text.as_bytes());
    bytes.extend(std::iter::repeat_n(0, numbers * 4));
    bytes
}

#[test]
fn corrupt_files_are_refused_and_none_of_them_panics() {
    let (device, folder) = (Device::cpu(), TempDir::new().unwrap());
    let load = |bytes: &[u8]| load_safetensors(&pythons(&device), file(&folder, bytes));
    for length in 0..PYTHON.len() {
        assert!(load(&PYTHON[..length]).is_err(), "cut off after {length} bytes");
    }
    let header = 8 + u64::from_le_bytes(PYTHON[..8].try_into().unwrap()) as usize;
    for place in 0..header {
        for flip in [1, 0x20, 0x80] {
            let mut bytes = PYTHON.to_vec();
            bytes[place] ^= flip;
            // Some changes leave the file sound: of spaces, or of what no tensor rests on. None may panic.
            drop(load(&bytes));
        }
    }
    let p = [named("p", Tensor::zeros(2, DType::F32, &device).unwrap())];
    let refusals = [
        (one("\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]", 3), "it may have been cut off"),
        (one("\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,8]", 2), "not that of a safetensors file"),
        (one("\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[4,12]", 3), "not that of a safetensors file"),
        (one("\"dtype\":\"F32\",\"shape\":[4611686018427387904,4],\"data_offsets\":[0,8]", 2), "not that of"),
        (one("\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,18446744073709551615]", 2), "not that of"),
        (one("\"dtype\":\"Q9\",\"shape\":[2],\"data_offsets\":[0,8]", 2), "not that of a safetensors file"),
        (one("\"dtype\":\"I32\",\"shape\":[2],\"data_offsets\":[0,8]", 2), "p is of type I32, which is not supported"),
        (one("\"dtype\":\"F32\",\"shape\":[2,1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,8]", 2), "p has shape [2, 1, 1"),
        (u64::MAX.to_le_bytes().to_vec(), "announce a header of 18446744073709551615 bytes"),
        (b"PK\x03\x04 a zip file".to_vec(), "not a safetensors file"),
        (Vec::new(), "it has 0 bytes"),
    ];
    for (bytes, part) in refusals {
        let refusal = load_safetensors(&p, file(&folder, &bytes)).unwrap_err().to_string();
        assert!(refusal.contains(part), "{part}: {refusal}");
    }
    load_safetensors(&p, file(&folder, &one("\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]", 2))).unwrap();
}

#[test]
fn running_averages_are_saved_and_loaded_with_the_weights() {
    let (device, folder) = (Device::cpu(), TempDir::new().unwrap());
    let norm = || BatchNorm2d::new(&mut Init::new(&device, DType::F32, 0), 3).unwrap();
    let (trained, fresh) = (norm(), norm());
    let images = Tensor::randn([2, 3, 4, 4], DType::F32, &device, &mut Rng::new(5)).unwrap();
    trained.forward(&images).unwrap();
    let numbers = |module: &BatchNorm2d| -> Vec<(String, Vec<f64>)> {
        module.weights().iter().map(|weight| (weight.path.clone(), weight.tensor.to_f64_vec().unwrap())).collect()
    };
    assert_ne!(numbers(&trained), numbers(&fresh));
    let path = folder.path().join("norm.safetensors");
    save_safetensors(&trained.weights(), &path).unwrap();
    load_safetensors(&fresh.weights(), &path).unwrap();
    assert_eq!(numbers(&trained), numbers(&fresh));
    assert!(numbers(&fresh).iter().any(|(path, _)| path == "running_mean"));
}
