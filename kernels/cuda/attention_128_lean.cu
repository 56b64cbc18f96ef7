// Attention's gradients of keys and values for heads of 97 to 128 elements, on devices with little shared memory per
// block.
#include "attention_plans.cuh"

typedef Plans<sizeof(T), 128, LEAN> Chosen;

ATTENTION_KEY_GRADIENTS(Chosen::KeyGradients)
