//! cuDNN's recurrent layers. The layout of the weights is documented, and exact. The sizes of the reserve space and the
//! workspace are undocumented and therefore estimated, which is reported.
#![expect(unsafe_code, reason = "calls NVIDIA's library, and exports functions under its names")]

use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::sync::{LazyLock, Mutex, PoisonError};

use super::real;
use crate::abi::{INVALID_VALUE, Out, SUCCESS, Status, answer, functions, give, new_handle};
use crate::contents;
use crate::notes::{Kind, note};
use crate::settings::settings;

// Constants of cuDNN's headers.
const CELL_LSTM: c_int = 2;
const CELL_GRU: c_int = 3;
const DTYPE_FLOAT: c_int = 0;
const DTYPE_DOUBLE: c_int = 1;
const FORWARD_TRAINING: c_int = 1;

#[derive(Clone, Copy, Debug, Default)]
struct Recurrent {
    cell: c_int,
    has_bias: bool,
    directions: usize,
    layers: usize,
    input: usize,
    hidden: usize,
    projected: usize,
    dtype: c_int,
}

impl Recurrent {
    fn element_bytes(&self) -> usize {
        match self.dtype {
            DTYPE_DOUBLE => 8,
            DTYPE_FLOAT => 4,
            _ => 2,
        }
    }

    fn gates(&self) -> usize {
        match self.cell {
            CELL_LSTM => 4,
            CELL_GRU => 3,
            _ => 1,
        }
    }

    fn has_projection(&self) -> bool {
        self.projected != self.hidden
    }

    /// The number of input features of pseudo-layer `number` (one direction of one layer).
    fn input_of(&self, number: usize) -> usize {
        if number < self.directions { self.input } else { self.projected * self.directions }
    }

    fn matrix_elements(&self, number: usize) -> usize {
        let projection = if self.has_projection() { self.projected * self.hidden } else { 0 };
        self.gates() * self.hidden * (self.input_of(number) + self.projected) + projection
    }

    fn matrices_before(&self, number: usize) -> usize {
        (0..number).map(|before| self.matrix_elements(before)).sum()
    }

    fn pseudo_layers(&self) -> usize {
        self.layers * self.directions
    }

    /// Number of elements of a pseudo-layer's biases for the input and the hidden state.
    fn bias_elements(&self) -> usize {
        if self.has_bias { 2 * self.gates() * self.hidden } else { 0 }
    }

    fn weight_bytes(&self) -> usize {
        let elements = self.matrices_before(self.pseudo_layers()) + self.pseudo_layers() * self.bias_elements();
        elements * self.element_bytes()
    }

    /// Offset in elements, and number of rows and columns, of a matrix of a pseudo-layer. The input matrices of all
    /// gates come first, then those of the hidden state, then the projection.
    fn matrix(&self, number: usize, linear: usize) -> Option<(usize, usize, usize)> {
        let (gates, input) = (self.gates(), self.input_of(number));
        let start = self.matrices_before(number);
        let of_hidden = start + gates * self.hidden * input;
        match linear.checked_sub(gates) {
            None => Some((start + linear * self.hidden * input, self.hidden, input)),
            Some(gate) if gate < gates => {
                Some((of_hidden + gate * self.hidden * self.projected, self.hidden, self.projected))
            }
            Some(_) if self.has_projection() => {
                Some((of_hidden + gates * self.hidden * self.projected, self.projected, self.hidden))
            }
            Some(_) => None,
        }
    }

    /// Offset in elements of a bias. All biases are after all matrices.
    fn bias(&self, number: usize, linear: usize) -> Option<usize> {
        let is_one = self.has_bias && linear < 2 * self.gates();
        let before = self.matrices_before(self.pseudo_layers()) + number * self.bias_elements();
        is_one.then(|| before + linear * self.hidden)
    }

    /// Estimates the bytes of workspace, and of reserve space in training, for inputs of `steps` × `batch` vectors.
    fn temporary_bytes(&self, steps: usize, batch: usize) -> (usize, usize) {
        let states = self.pseudo_layers() * steps * batch * self.hidden * self.element_bytes();
        (states * self.gates(), states * (self.gates() + 2))
    }
}

#[derive(Default)]
struct Descriptors {
    layers: HashMap<usize, Recurrent>,
    /// Number of steps and batch size of each data descriptor.
    data: HashMap<usize, (usize, usize)>,
}

static DESCRIPTORS: LazyLock<Mutex<Descriptors>> = LazyLock::new(Mutex::default);

fn with<T>(use_them: impl FnOnce(&mut Descriptors) -> T) -> T {
    use_them(&mut DESCRIPTORS.lock().unwrap_or_else(PoisonError::into_inner))
}

fn layer(descriptor: usize) -> Option<Recurrent> {
    with(|known| known.layers.get(&descriptor).copied())
}

/// Describes a matrix of 1 × rows × columns in a tensor descriptor of the real library, unless it is null.
fn describe(descriptor: usize, dtype: c_int, rows: usize, columns: usize) -> Status {
    type SetTensor = unsafe extern "C" fn(usize, c_int, c_int, *const c_int, *const c_int) -> Status;
    if descriptor == 0 {
        return SUCCESS;
    }
    let found = real::function(c"cudnnSetTensorNdDescriptor");
    if found.is_null() {
        return INVALID_VALUE;
    }
    // SAFETY: the library's function of this name, as its header declares it.
    let set = unsafe { std::mem::transmute::<*mut c_void, SetTensor>(found) };
    let dimensions = [1, rows as c_int, columns as c_int];
    let strides = [(rows * columns) as c_int, columns as c_int, 1];
    // SAFETY: three dimensions, which are copied.
    unsafe { set(descriptor, dtype, 3, dimensions.as_ptr(), strides.as_ptr()) }
}

functions! {
    fn cudnnCreateRNNDescriptor(out: Out<'_, usize>) {
        let handle = new_handle();
        with(|known| known.layers.insert(handle, Recurrent::default()));
        give(out, handle);
    }
    fn cudnnDestroyRNNDescriptor(descriptor: usize) { with(|known| known.layers.remove(&descriptor)); }

    fn cudnnSetRNNDescriptor_v8(
        descriptor: usize, _algorithm: c_int, cell: c_int, bias: c_int, direction: c_int, _input_mode: c_int,
        dtype: c_int, _precision: c_int, _math: c_int, input: i32, hidden: i32, projected: i32, layers: i32,
    ) {
        let [input, hidden, projected, layers] = [input, hidden, projected, layers].map(|number| number.max(0) as usize);
        let directions = if direction == 0 { 1 } else { 2 };
        let made = Recurrent { cell, has_bias: bias != 0, directions, layers, input, hidden, projected, dtype };
        with(|known| known.layers.insert(descriptor, made));
    }

    fn cudnnGetRNNWeightSpaceSize(_handle: usize, descriptor: usize, bytes: Out<'_, usize>) {
        let Some(layer) = layer(descriptor) else { return INVALID_VALUE };
        give(bytes, layer.weight_bytes());
        SUCCESS
    }

    fn cudnnGetRNNWeightParams(
        _handle: usize, descriptor: usize, number: i32, _bytes: usize, weights: usize, linear: i32,
        matrix: usize, matrix_at: Out<'_, usize>, bias: usize, bias_at: Out<'_, usize>,
    ) {
        let Some(layer) = layer(descriptor) else { return INVALID_VALUE };
        let (number, linear) = (number.max(0) as usize, linear.max(0) as usize);
        let at = |offset: usize| weights + offset * layer.element_bytes();
        let mut status = SUCCESS;
        match layer.matrix(number, linear) {
            Some((offset, rows, columns)) => {
                give(matrix_at, at(offset));
                status = describe(matrix, layer.dtype, rows, columns);
            }
            None => give(matrix_at, 0),
        }
        match layer.bias(number, linear) {
            Some(offset) if status == SUCCESS => {
                give(bias_at, at(offset));
                status = describe(bias, layer.dtype, layer.hidden, 1);
            }
            _ => give(bias_at, 0),
        }
        status
    }

    fn cudnnCreateRNNDataDescriptor(out: Out<'_, usize>) { give(out, new_handle()) }
    fn cudnnDestroyRNNDataDescriptor(descriptor: usize) { with(|known| known.data.remove(&descriptor)); }
    fn cudnnSetRNNDataDescriptor(descriptor: usize, _dtype: c_int, _layout: c_int, steps: c_int, batch: c_int) {
        with(|known| known.data.insert(descriptor, (steps.max(0) as usize, batch.max(0) as usize)));
    }

    fn cudnnGetRNNTempSpaceSizes(
        _handle: usize, descriptor: usize, mode: c_int, input: usize, workspace: Out<'_, usize>, reserve: Out<'_, usize>,
    ) {
        let Some(layer) = layer(descriptor) else { return INVALID_VALUE };
        let (steps, batch) = with(|known| known.data.get(&input).copied()).unwrap_or((1, 1));
        let (workspace_bytes, reserve_bytes) = layer.temporary_bytes(steps, batch);
        note(Kind::UnknownWorkspace, "cudnnRNNForward");
        give(workspace, workspace_bytes);
        give(reserve, if mode == FORWARD_TRAINING { reserve_bytes } else { 0 });
        SUCCESS
    }

    fn cudnnRNNForward() { contents::kernel_ran() }
    fn cudnnRNNBackwardData_v8() { contents::kernel_ran() }
    fn cudnnRNNBackwardWeights_v8() { contents::kernel_ran() }

    /// Returns the presumed size: one random number generator state for each thread of the device.
    fn cudnnDropoutGetStatesSize(_handle: usize, bytes: Out<'_, usize>) {
        let gpu = &settings().gpu;
        give(bytes, gpu.multiprocessors as usize * gpu.architecture().threads_per_multiprocessor as usize * 8);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_weights_have_as_many_elements_as_the_parameters() {
        let lstm = Recurrent {
            cell: CELL_LSTM,
            has_bias: true,
            directions: 2,
            layers: 2,
            input: 10,
            hidden: 20,
            projected: 20,
            dtype: DTYPE_FLOAT,
        };
        let gates = 4 * 20;
        assert_eq!(lstm.weight_bytes() / 4, 2 * gates * (10 + 20 + 2) + 2 * gates * (40 + 20 + 2));
        let projected = Recurrent { projected: 8, ..lstm };
        assert_eq!(projected.weight_bytes() / 4, 2 * (gates * (10 + 8 + 2) + 160) + 2 * (gates * (16 + 8 + 2) + 160));
    }

    #[test]
    fn matrices_and_biases_fill_the_weights_without_a_gap_or_an_overlap() {
        for (cell, projected) in [(CELL_LSTM, 20), (CELL_LSTM, 8), (CELL_GRU, 20), (0, 20)] {
            let layer = Recurrent {
                cell,
                has_bias: true,
                directions: 2,
                layers: 3,
                input: 10,
                hidden: 20,
                projected,
                dtype: DTYPE_DOUBLE,
            };
            let mut parts = Vec::new();
            for number in 0..layer.pseudo_layers() {
                for linear in 0..=2 * layer.gates() {
                    parts.extend(layer.matrix(number, linear).map(|(offset, rows, columns)| (offset, rows * columns)));
                    parts.extend(layer.bias(number, linear).map(|offset| (offset, layer.hidden)));
                }
            }
            parts.sort_unstable();
            let mut end = 0;
            for (offset, elements) in parts {
                assert_eq!(offset, end);
                end += elements;
            }
            assert_eq!(end * 8, layer.weight_bytes());
        }
    }
}
