// Attention's gradients for rows of 129 to 256 numbers, where blocks have little shared memory.
#include "attention_plans.cuh"

typedef Plans<sizeof(T), 256, LEAN> Chosen;

ATTENTION_KEY_GRADIENTS(Chosen::KeyGradients)
ATTENTION_QUERY_GRADIENTS(Chosen::QueryGradients)
