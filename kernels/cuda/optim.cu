// Optim: fused optimizer steps of many tensors in one launch. Each element of parameter, gradient and state is read
// once and written once. T is the parameter's type, any floating-point type; U is the gradient's.
//
// All but gradients lies in order. Gradients that do not are gone over by the kernels named after a nest, a tensor
// each.
#include "multi_tensor.cuh"
#include "steps.cuh"

const u32 WIDTH = 16 / sizeof(T);
typedef Pack<T, WIDTH> Wide;
typedef Pack<U, WIDTH> WideGrad;
// Bytes of arguments that tell of tensors.
const u32 BYTES = 4000;

__device__ inline Real load_grad(U x) { return (Real)load(x); }

// Absent tensors are null. `rounded` is the parameter in the gradient's type.
struct SgdTensor {
    T* parameter;
    U* rounded;
    T* direction;

    __device__ void move(const Sgd& sgd, T& p, T& b, Real gradient, U& copy) const {
        Real g = sgd.gradient(load(p), gradient), way = g;
        if (direction) {
            Real turned = sgd.direction(sgd.is_first ? Real(0) : load(b), g);
            b = store<T>(turned);
            way = sgd.way(turned, g);
        }
        Real moved = sgd.parameter(load(p), way);
        p = store<T>(moved);
        copy = store<U>(moved);
    }

    __device__ void move_one(const Sgd& sgd, u64 place, U grad) const {
        T p = parameter[place], b = {};
        U copy;
        if (direction && !sgd.is_first) {
            b = direction[place];
        }
        move(sgd, p, b, load_grad(grad), copy);
        parameter[place] = p;
        if (direction) {
            direction[place] = b;
        }
        if (rounded) {
            rounded[place] = copy;
        }
    }
};

KERNEL void sgd_each(const Many<4, tensors_in(BYTES, 4)> tensors, const SgdStep step) {
    Chunk<4> chunk = chunk_of_block(tensors);
    SgdTensor tensor{chunk.at<T>(0), chunk.addresses[1] ? chunk.at<U>(1) : nullptr,
                     chunk.addresses[3] ? chunk.at<T>(3) : nullptr};
    const U* grad = chunk.at<U>(2);
    Sgd sgd(step);
    bool is_packed = chunk.is_aligned<T, WIDTH>(0) && chunk.is_aligned<U, WIDTH>(1) && chunk.is_aligned<U, WIDTH>(2) &&
                     chunk.is_aligned<T, WIDTH>(3);
    u64 packs = is_packed ? chunk.length / WIDTH : 0;
    for (u64 place = threadIdx.x; place < packs; place += blockDim.x) {
        Wide p = ((const Wide*)tensor.parameter)[place], b = {};
        WideGrad g = ((const WideGrad*)grad)[place];
        if (tensor.direction && !sgd.is_first) {
            b = ((const Wide*)tensor.direction)[place];
        }
        for (u32 k = 0; k < WIDTH; k++) {
            tensor.move(sgd, p.element[k], b.element[k], load_grad(g.element[k]), g.element[k]);
        }
        ((Wide*)tensor.parameter)[place] = p;
        if (tensor.direction) {
            ((Wide*)tensor.direction)[place] = b;
        }
        if (tensor.rounded) {
            ((WideGrad*)tensor.rounded)[place] = g;
        }
    }
    for (u64 place = packs * WIDTH + threadIdx.x; place < chunk.length; place += blockDim.x) {
        tensor.move_one(sgd, place, grad[place]);
    }
}
EXPORT_PLAIN(sgd_each)

// Operands of the nest: the parameter, and the gradient.
KERNEL void sgd_nest(T* parameter, U* rounded, const U* grad, T* direction, u64 elements, const Nest<2> nest,
                     const SgdStep step) {
    SgdTensor tensor{parameter, rounded, direction};
    Sgd sgd(step);
    for (u64 i = first_element(); i < elements; i += all_threads()) {
        tensor.move_one(sgd, i, grad[offsets_of(nest, i).of[1]]);
    }
}
EXPORT_PLAIN(sgd_nest)

struct AdamTensor {
    T* parameter;
    U* rounded;
    T *mean, *square;

    __device__ void move(const Adam& adam, T& p, T& m, T& v, Real gradient, U& copy) const {
        Real parameter = load(p), mean = load(m), square = load(v);
        adam.move(parameter, gradient, mean, square);
        p = store<T>(parameter);
        m = store<T>(mean);
        v = store<T>(square);
        copy = store<U>(parameter);
    }

    __device__ void move_one(const Adam& adam, u64 place, U grad) const {
        U copy;
        move(adam, parameter[place], mean[place], square[place], load_grad(grad), copy);
        if (rounded) {
            rounded[place] = copy;
        }
    }
};

KERNEL void adam_each(const Many<5, tensors_in(BYTES, 5)> tensors, const AdamStep step) {
    Chunk<5> chunk = chunk_of_block(tensors);
    AdamTensor tensor{chunk.at<T>(0), chunk.addresses[1] ? chunk.at<U>(1) : nullptr, chunk.at<T>(3), chunk.at<T>(4)};
    const U* grad = chunk.at<U>(2);
    Adam adam(step);
    bool is_packed = chunk.is_aligned<T, WIDTH>(0) && chunk.is_aligned<U, WIDTH>(1) && chunk.is_aligned<U, WIDTH>(2) &&
                     chunk.is_aligned<T, WIDTH>(3) && chunk.is_aligned<T, WIDTH>(4);
    u64 packs = is_packed ? chunk.length / WIDTH : 0;
    for (u64 place = threadIdx.x; place < packs; place += blockDim.x) {
        Wide p = ((const Wide*)tensor.parameter)[place];
        Wide m = ((const Wide*)tensor.mean)[place], v = ((const Wide*)tensor.square)[place];
        WideGrad g = ((const WideGrad*)grad)[place];
        for (u32 k = 0; k < WIDTH; k++) {
            tensor.move(adam, p.element[k], m.element[k], v.element[k], load_grad(g.element[k]), g.element[k]);
        }
        ((Wide*)tensor.parameter)[place] = p;
        ((Wide*)tensor.mean)[place] = m;
        ((Wide*)tensor.square)[place] = v;
        if (tensor.rounded) {
            ((WideGrad*)tensor.rounded)[place] = g;
        }
    }
    for (u64 place = packs * WIDTH + threadIdx.x; place < chunk.length; place += blockDim.x) {
        tensor.move_one(adam, place, grad[place]);
    }
}
EXPORT_PLAIN(adam_each)

// As `sgd_nest`.
KERNEL void adam_nest(T* parameter, U* rounded, const U* grad, T* mean, T* square, u64 elements, const Nest<2> nest,
                      const AdamStep step) {
    AdamTensor tensor{parameter, rounded, mean, square};
    Adam adam(step);
    for (u64 i = first_element(); i < elements; i += all_threads()) {
        tensor.move_one(adam, i, grad[offsets_of(nest, i).of[1]]);
    }
}
EXPORT_PLAIN(adam_nest)
