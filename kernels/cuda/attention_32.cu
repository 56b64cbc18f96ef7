// Attention for heads of 1 to 32 elements.
#include "attention_plans.cuh"

typedef Plans<sizeof(T), 32, SMALL> Chosen;

ATTENTION_FORWARD(Chosen::Forward)
ATTENTION_KEY_GRADIENTS(Chosen::KeyGradients)
ATTENTION_QUERY_GRADIENTS(Chosen::QueryGradients)
