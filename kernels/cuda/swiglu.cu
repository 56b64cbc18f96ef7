// SwiGLU: silu(gate) · up in one pass, and both gradients in another. T is any floating-point type. All tensors are
// contiguous.
#include "lines.cuh"
#include "maths.cuh"

const u32 WIDTH = 16 / sizeof(T);
typedef Pack<T, WIDTH> Wide;

KERNEL void swiglu(T* out, const T* gate, const T* up, u64 elements, u32 is_packed) {
    Share share{first_element(), all_threads(), elements, is_packed != 0};
    write_line<WIDTH>(
        share, Line<T>{out, 1},
        [](T gate, T up) {
            Real x = load(gate);
            return store<T>(x * sigmoid(x) * load(up));
        },
        Line<const T>{gate, 1}, Line<const T>{up, 1});
}
EXPORT_PLAIN(swiglu)

struct Slopes {
    T gate, up;
};

__device__ inline Slopes slopes_of(T grad, T gate, T up) {
    Real g = load(grad), x = load(gate), share = sigmoid(x);
    return Slopes{store<T>(g * load(up) * share * (Real(1) + x * (Real(1) - share))), store<T>(g * x * share)};
}

// Outputs that are not wanted are null. An output may be an input: a thread reads all at a place before it writes
// there.
KERNEL void swiglu_backward(T* of_gate, T* of_up, const T* grad, const T* gate, const T* up, u64 elements,
                            u32 is_packed) {
    u64 packs = is_packed ? elements / WIDTH : 0;
    for (u64 place = first_element(); place < packs; place += all_threads()) {
        Wide g = ((const Wide*)grad)[place], x = ((const Wide*)gate)[place], y = ((const Wide*)up)[place];
        for (u32 k = 0; k < WIDTH; k++) {
            Slopes slopes = slopes_of(g.element[k], x.element[k], y.element[k]);
            x.element[k] = slopes.gate;
            y.element[k] = slopes.up;
        }
        if (of_gate) {
            ((Wide*)of_gate)[place] = x;
        }
        if (of_up) {
            ((Wide*)of_up)[place] = y;
        }
    }
    for (u64 place = packs * WIDTH + first_element(); place < elements; place += all_threads()) {
        Slopes slopes = slopes_of(grad[place], gate[place], up[place]);
        if (of_gate) {
            of_gate[place] = slopes.gate;
        }
        if (of_up) {
            of_up[place] = slopes.up;
        }
    }
}
EXPORT_PLAIN(swiglu_backward)
