// Attention's gradients of keys and values for rows of 97 to 128 numbers, where blocks have little shared memory.
#include "attention_plans.cuh"

typedef Plans<sizeof(T), 128, LEAN> Chosen;

ATTENTION_KEY_GRADIENTS(Chosen::KeyGradients)
