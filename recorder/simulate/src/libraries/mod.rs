//! The functions of NVIDIA's libraries that PyTorch calls. Operations succeed without effect.

mod workspace;
mod cublas;
mod cudnn;
mod cufft;
mod cusolver;
mod cusparse;
mod cusparselt;
mod nccl;
mod cupti;
mod nvml;
