// Attention for heads of 97 to 128 elements and many rows.
#include "attention_plans.cuh"

typedef Plans<sizeof(T), 128, LARGE> Chosen;

ATTENTION_FORWARD(Chosen::Forward)
ATTENTION_QUERY_GRADIENTS(Chosen::QueryGradients)
