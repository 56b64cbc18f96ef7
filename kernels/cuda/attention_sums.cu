// Attention's sums: each row of the result's gradient times the result, and gradients of which several blocks have
// parts.
#include "attention.cuh"
#include "nest.cuh"

// Each sum by `lanes` neighbouring lanes, a power of two of them.
KERNEL void attention_delta(Real* out, const T* grad, const T* result, u64 rows, u64 width, u32 is_wide, u32 lanes,
                            const Nest<3> nest) {
    u32 lane = threadIdx.x % lanes;
    u64 rows_at_once = all_threads() / lanes;
    // All lanes of a warp go round as often, since they wait for one another.
    for (u64 done = 0; done < rows; done += rows_at_once) {
        u64 row = done + first_element() / lanes;
        Offsets<3> at = offsets_of(nest, row < rows ? row : 0);
        const T* left = grad + at.of[1];
        const T* right = result + at.of[2];
        Real sum = Real(0);
        if (is_wide) {
            for (u64 column = lane * CHUNK; column < width; column += lanes * CHUNK) {
                Chunk l = *(const Chunk*)(left + column), r = *(const Chunk*)(right + column);
                for (u32 k = 0; k < CHUNK; k++) {
                    sum += load(l.element[k]) * load(r.element[k]);
                }
            }
        } else {
            for (u64 column = lane; column < width; column += lanes) {
                sum += load(left[column]) * load(right[column]);
            }
        }
        for (u32 distance = lanes / 2; distance > 0; distance /= 2) {
            sum += __shfl_xor_sync(ALL_LANES, sum, distance);
        }
        if (row < rows && lane == 0) {
            out[at.of[0]] = sum;
        }
    }
}
EXPORT(attention_delta)

// Adds up the parts of the gradients of keys and values, in order.
KERNEL void attention_add_parts(const Rows<T> key_grad, const Rows<T> value_grad, Real* waiting, const Sight sight) {
    u32 heads = sight.heads / sight.heads_a_key;
    u64 rows = sight.batches * heads * sight.keys, all = 2 * rows * sight.width;
    for (u64 index = first_element(); index < all; index += all_threads()) {
        Real sum = Real(0);
        for (u32 part = 0; part < sight.parts; part++) {
            sum += waiting[part * all + index];
        }
        u64 row = index / sight.width % rows;
        u64 batch = row / sight.keys / heads, head = row / sight.keys % heads, key = row % sight.keys;
        // A reference to either would put both into local memory.
        auto out = index / sight.width < rows ? key_grad.at(batch, head, key) : value_grad.at(batch, head, key);
        out[index % sight.width] = store<T>(sum);
    }
}
EXPORT_PLAIN(attention_add_parts)
