//! Tests the results of operations, layers and networks, and the memory that they need. Tests that record are separate
//! binaries, because a process has only one recorder, which would record the other tests as well.

mod grad_harness;
mod values_harness;

mod autocast;
mod autograd_block;
mod autograd_memory;
mod checkpoint;
mod choosing;
mod concat_memory;
mod conv_memory;
mod conv_ops;
mod corners;
mod cpu_kernels;
mod decoder_ops;
mod fcn;
mod gradcheck;
mod image_nets;
mod language_models;
mod linear_cross_entropy;
mod models;
mod ops_values;
mod tensor;
