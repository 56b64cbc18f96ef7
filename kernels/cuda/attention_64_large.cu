// Attention for heads of 33 to 64 elements and many rows.
#include "attention_plans.cuh"

typedef Plans<sizeof(T), 64, LARGE> Chosen;

ATTENTION_FORWARD(Chosen::Forward)
ATTENTION_KEY_GRADIENTS(Chosen::KeyGradients)
ATTENTION_QUERY_GRADIENTS(Chosen::QueryGradients)
