// Optim 8-bit: Adam's fused step with averages of one byte an element, many tensors in one launch. T is the parameter's
// type, any floating-point type; U is the gradient's.
//
// A warp takes a code block at a time: 256 numbers of a state, which share a divisor, the largest magnitude among them.
#include "block.cuh"
#include "multi_tensor.cuh"
#include "steps.cuh"

const u32 CODE_BLOCK = 256, CODES = 256;
// Elements that a lane takes at a time, and how many times it does for a code block.
const u32 WIDTH = 4, TURNS = CODE_BLOCK / WIDTH / WARP;
// Bytes of arguments that tell of tensors, beside the numbers of both codes.
const u32 BYTES = 1900;

// The numbers that a byte stands for, rising.
struct Code {
    f32 values[CODES];
};

// For the averages of the gradient, from −1 to 1, and of its square, from 0 to 1.
struct Codes {
    Code of_mean, of_square;
};

struct CodedStep {
    AdamStep step;
    Codes codes;
};

// A code where threads can look things up, with the bounds halfway between neighbours.
struct Table {
    f32 values[CODES], bounds[CODES];

    // Every thread of the block takes part, and waits before it looks anything up.
    __device__ void fill(const Code& code) {
        for (u32 place = threadIdx.x; place < CODES; place += blockDim.x) {
            u32 next = place + 1 < CODES ? place + 1 : place;
            values[place] = code.values[place];
            bounds[place] = (code.values[place] + code.values[next]) / 2.0f;
        }
    }

    // The code of the nearest number: how many bounds lie below.
    __device__ u32 code_of(f32 number) const {
        u32 code = 0;
        for (u32 step = CODES / 2; step > 0; step /= 2) {
            code += bounds[code + step - 1] < number ? step : 0;
        }
        return code;
    }
};

// The part that a lane takes of a code block of `length` numbers. With `is_packed`, the block is whole, and lies where
// packs may.
struct Part {
    u32 length;
    bool is_packed;

    // Where in the block the lane's elements of this turn begin.
    __device__ static u32 first(u32 turn) { return (turn * WARP + threadIdx.x % WARP) * WIDTH; }

    // Missing elements are 0.
    template <class N>
    __device__ Pack<N, WIDTH> read(const N* block, u32 turn) const {
        if (is_packed) {
            return *(const Pack<N, WIDTH>*)(block + first(turn));
        }
        Pack<N, WIDTH> four = {};
        for (u32 k = 0; k < WIDTH; k++) {
            if (first(turn) + k < length) {
                four.element[k] = block[first(turn) + k];
            }
        }
        return four;
    }

    template <class N>
    __device__ void write(N* block, u32 turn, const Pack<N, WIDTH>& four) const {
        if (is_packed) {
            *(Pack<N, WIDTH>*)(block + first(turn)) = four;
            return;
        }
        for (u32 k = 0; k < WIDTH; k++) {
            if (first(turn) + k < length) {
                block[first(turn) + k] = four.element[k];
            }
        }
    }
};

// A lane's numbers of a code block, in full.
typedef Pack<f32, TURNS * WIDTH> Full;

// One of the two averages.
struct State {
    const Table& table;
    u8* codes;
    f32* scale;

    __device__ Full decoded(const Part& part) const {
        Full full;
        f32 factor = *scale;
        for (u32 turn = 0; turn < TURNS; turn++) {
            Pack<u8, WIDTH> bytes = part.read(codes, turn);
            for (u32 k = 0; k < WIDTH; k++) {
                full.element[turn * WIDTH + k] = table.values[bytes.element[k]] * factor;
            }
        }
        return full;
    }

    // A number above 0 gets a code of `least` or more.
    __device__ void encode(const Part& part, const Full& full, u32 least) const {
        f32 largest = 0.0f;
        for (u32 turn = 0; turn < TURNS; turn++) {
            for (u32 k = 0; k < WIDTH; k++) {
                bool is_there = Part::first(turn) + k < part.length;
                largest = fmaxf(largest, is_there ? fabsf(full.element[turn * WIDTH + k]) : 0.0f);
            }
        }
        largest = fold_warp<Largest>(largest);
        f32 divisor = largest > 0.0f ? largest : 1.0f;
        for (u32 turn = 0; turn < TURNS; turn++) {
            Pack<u8, WIDTH> bytes;
            for (u32 k = 0; k < WIDTH; k++) {
                f32 number = full.element[turn * WIDTH + k];
                u32 code = table.code_of(number / divisor);
                bytes.element[k] = (u8)(number > 0.0f && code < least ? least : code);
            }
            part.write(codes, turn, bytes);
        }
        if (threadIdx.x % WARP == 0) {
            *scale = largest;
        }
    }
};

// Parameters of a code block. Missing parameters are null.
struct Weights {
    T* parameter;
    U* rounded;
};

// `grads(turn)`: the lane's gradients of that turn.
template <class Grads>
__device__ inline void move_block(const Adam& adam, const Part& part, const Weights& weights, const State& of_mean,
                                  const State& of_square, Grads grads) {
    Full means = of_mean.decoded(part), squares = of_square.decoded(part);
    for (u32 turn = 0; turn < TURNS; turn++) {
        Pack<T, WIDTH> p = part.read(weights.parameter, turn);
        Pack<U, WIDTH> g = grads(turn);
        for (u32 k = 0; k < WIDTH; k++) {
            u32 place = turn * WIDTH + k;
            Real parameter = load(p.element[k]), mean = means.element[place], square = squares.element[place];
            adam.move(parameter, (Real)load(g.element[k]), mean, square);
            means.element[place] = (f32)mean;
            squares.element[place] = (f32)square;
            p.element[k] = store<T>(parameter);
            g.element[k] = store<U>(parameter);
        }
        part.write(weights.parameter, turn, p);
        if (weights.rounded) {
            part.write(weights.rounded, turn, g);
        }
    }
    // All lanes have read a scale before one writes it.
    __syncwarp();
    of_mean.encode(part, means, 0);
    // A square that became 0 would have the next step divide by next to nothing.
    of_square.encode(part, squares, 1);
}

KERNEL void adam_8bit_each(const Many<7, tensors_in(BYTES, 7)> tensors, const CodedStep coded) {
    __shared__ Table of_mean, of_square;
    of_mean.fill(coded.codes.of_mean);
    of_square.fill(coded.codes.of_square);
    __syncthreads();
    Chunk<7> chunk = chunk_of_block(tensors);
    Adam adam(coded.step);
    const U* grad = chunk.at<U>(2);
    bool is_aligned = chunk.is_aligned<T, WIDTH>(0) && chunk.is_aligned<U, WIDTH>(1) && chunk.is_aligned<U, WIDTH>(2) &&
                      chunk.is_aligned<u8, WIDTH>(3) && chunk.is_aligned<u8, WIDTH>(4);
    u64 first_block = chunk.first / CODE_BLOCK;
    for (u64 first = threadIdx.x / WARP * CODE_BLOCK; first < chunk.length; first += blockDim.x / WARP * CODE_BLOCK) {
        u64 block = first_block + first / CODE_BLOCK, rest = chunk.length - first;
        Part part{rest < CODE_BLOCK ? (u32)rest : CODE_BLOCK, is_aligned && rest >= CODE_BLOCK};
        Weights weights{chunk.at<T>(0) + first, chunk.addresses[1] ? chunk.at<U>(1) + first : nullptr};
        State mean{of_mean, chunk.at<u8>(3) + first, (f32*)chunk.addresses[5] + block};
        State square{of_square, chunk.at<u8>(4) + first, (f32*)chunk.addresses[6] + block};
        move_block(adam, part, weights, mean, square, [&](u32 turn) { return part.read(grad + first, turn); });
    }
}
EXPORT(adam_8bit_each)

// One tensor whose gradient is not in order. Operands of the nest: the parameter, and the gradient.
KERNEL void adam_8bit_nest(T* parameter, U* rounded, const U* grad, u8* mean, u8* square, f32* mean_scale,
                           f32* square_scale, u64 elements, const Nest<2> nest, const CodedStep coded) {
    __shared__ Table of_mean, of_square;
    of_mean.fill(coded.codes.of_mean);
    of_square.fill(coded.codes.of_square);
    __syncthreads();
    Adam adam(coded.step);
    u64 warps = all_threads() / WARP;
    for (u64 block = first_element() / WARP; block * CODE_BLOCK < elements; block += warps) {
        u64 first = block * CODE_BLOCK, rest = elements - first;
        Part part{rest < CODE_BLOCK ? (u32)rest : CODE_BLOCK, false};
        Weights weights{parameter + first, rounded ? rounded + first : nullptr};
        State of_gradient{of_mean, mean + first, mean_scale + block};
        State of_its_square{of_square, square + first, square_scale + block};
        move_block(adam, part, weights, of_gradient, of_its_square, [&](u32 turn) {
            Pack<U, WIDTH> four = {};
            for (u32 k = 0; k < WIDTH; k++) {
                u32 place = Part::first(turn) + k;
                if (place < part.length) {
                    four.element[k] = grad[offsets_of(nest, first + place).of[1]];
                }
            }
            return four;
        });
    }
}
EXPORT(adam_8bit_nest)
