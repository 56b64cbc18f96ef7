//! cuSOLVER decompositions without workspaces, since their sizes on a GPU are unknown.
#![cfg_attr(not(test), expect(unsafe_code, reason = "exports functions under NVIDIA's names"))]

use std::ffi::c_int;

use super::workspace::{sizes_zero, unknown_workspace};
use crate::abi::{creates, succeeds};

creates! { cusolverDnCreate cusolverDnCreateGesvdjInfo cusolverDnCreateParams cusolverDnCreateSyevjInfo }

succeeds! {
    cusolverDnDestroy cusolverDnDestroyGesvdjInfo cusolverDnDestroyParams cusolverDnDestroySyevjInfo cusolverDnSetStream
    cusolverDnXsyevjSetSortEig cusolverDnXgesvdjSetMaxSweeps cusolverDnXgesvdjSetSortEig cusolverDnXgesvdjSetTolerance
    cusolverDnSpotrs cusolverDnDpotrs cusolverDnCpotrs cusolverDnZpotrs
    cusolverDnSpotrsBatched cusolverDnDpotrsBatched cusolverDnCpotrsBatched cusolverDnZpotrsBatched
    cusolverDnSpotrfBatched cusolverDnDpotrfBatched cusolverDnCpotrfBatched cusolverDnZpotrfBatched
    cusolverDnSgetrs cusolverDnDgetrs cusolverDnCgetrs cusolverDnZgetrs cusolverDnXpotrs
}

sizes_zero! { [_ _ _] [bytes: c_int]
    cusolverDnSgesvd_bufferSize cusolverDnDgesvd_bufferSize cusolverDnCgesvd_bufferSize cusolverDnZgesvd_bufferSize
}
sizes_zero! { [_ _ _ _] [bytes: c_int]
    cusolverDnSsytrf_bufferSize cusolverDnDsytrf_bufferSize cusolverDnCsytrf_bufferSize cusolverDnZsytrf_bufferSize
}
sizes_zero! { [_ _ _ _ _] [bytes: c_int]
    cusolverDnSgeqrf_bufferSize cusolverDnDgeqrf_bufferSize cusolverDnCgeqrf_bufferSize cusolverDnZgeqrf_bufferSize
    cusolverDnSgetrf_bufferSize cusolverDnDgetrf_bufferSize cusolverDnCgetrf_bufferSize cusolverDnZgetrf_bufferSize
    cusolverDnSpotrf_bufferSize cusolverDnDpotrf_bufferSize cusolverDnCpotrf_bufferSize cusolverDnZpotrf_bufferSize
}
sizes_zero! { [_ _ _ _ _ _ _] [bytes: c_int]
    cusolverDnSorgqr_bufferSize cusolverDnDorgqr_bufferSize cusolverDnCungqr_bufferSize cusolverDnZungqr_bufferSize
    cusolverDnSsyevd_bufferSize cusolverDnDsyevd_bufferSize cusolverDnCheevd_bufferSize cusolverDnZheevd_bufferSize
    cusolverDnSsyevjBatched_bufferSize cusolverDnDsyevjBatched_bufferSize
    cusolverDnCheevjBatched_bufferSize cusolverDnZheevjBatched_bufferSize
    cusolverDnSsyevj_bufferSize cusolverDnDsyevj_bufferSize cusolverDnCheevj_bufferSize cusolverDnZheevj_bufferSize
}
sizes_zero! { [_ _ _ _ _ _ _ _ _ _ _] [bytes: c_int]
    cusolverDnSormqr_bufferSize cusolverDnDormqr_bufferSize cusolverDnCunmqr_bufferSize cusolverDnZunmqr_bufferSize
    cusolverDnSgesvdjBatched_bufferSize cusolverDnDgesvdjBatched_bufferSize
    cusolverDnCgesvdjBatched_bufferSize cusolverDnZgesvdjBatched_bufferSize
}
sizes_zero! { [_ _ _ _ _ _ _ _ _ _ _ _] [bytes: c_int]
    cusolverDnSgesvdj_bufferSize cusolverDnDgesvdj_bufferSize cusolverDnCgesvdj_bufferSize cusolverDnZgesvdj_bufferSize
}
sizes_zero! { [_ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _] [bytes: c_int]
    cusolverDnSgesvdaStridedBatched_bufferSize cusolverDnDgesvdaStridedBatched_bufferSize
    cusolverDnCgesvdaStridedBatched_bufferSize cusolverDnZgesvdaStridedBatched_bufferSize
}
sizes_zero! { [_ _ _ _ _ _ _ _] [device: usize, host: usize] cusolverDnXpotrf_bufferSize }
sizes_zero! { [_ _ _ _ _ _ _ _ _ _] [device: usize, host: usize] cusolverDnXgeqrf_bufferSize }
sizes_zero! { [_ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _] [device: usize, host: usize] cusolverDnXgeev_bufferSize }
sizes_zero! { [_ _ _ _ _ _ _ _ _ _ _] [device: usize, host: usize]
    cusolverDnXsyevd_bufferSize cusolverDnXsyevBatched_bufferSize cusolverDnXsytrs_bufferSize
}

unknown_workspace! {
    cusolverDnSgesvd cusolverDnDgesvd cusolverDnCgesvd cusolverDnZgesvd
    cusolverDnSsytrf cusolverDnDsytrf cusolverDnCsytrf cusolverDnZsytrf
    cusolverDnSgeqrf cusolverDnDgeqrf cusolverDnCgeqrf cusolverDnZgeqrf
    cusolverDnSgetrf cusolverDnDgetrf cusolverDnCgetrf cusolverDnZgetrf
    cusolverDnSpotrf cusolverDnDpotrf cusolverDnCpotrf cusolverDnZpotrf
    cusolverDnSorgqr cusolverDnDorgqr cusolverDnCungqr cusolverDnZungqr
    cusolverDnSormqr cusolverDnDormqr cusolverDnCunmqr cusolverDnZunmqr
    cusolverDnSsyevd cusolverDnDsyevd cusolverDnCheevd cusolverDnZheevd
    cusolverDnSsyevj cusolverDnDsyevj cusolverDnCheevj cusolverDnZheevj
    cusolverDnSsyevjBatched cusolverDnDsyevjBatched cusolverDnCheevjBatched cusolverDnZheevjBatched
    cusolverDnSgesvdj cusolverDnDgesvdj cusolverDnCgesvdj cusolverDnZgesvdj
    cusolverDnSgesvdjBatched cusolverDnDgesvdjBatched cusolverDnCgesvdjBatched cusolverDnZgesvdjBatched
    cusolverDnSgesvdaStridedBatched cusolverDnDgesvdaStridedBatched
    cusolverDnCgesvdaStridedBatched cusolverDnZgesvdaStridedBatched
    cusolverDnXpotrf cusolverDnXgeqrf cusolverDnXsyevd cusolverDnXsyevBatched cusolverDnXsytrs cusolverDnXgeev
}
