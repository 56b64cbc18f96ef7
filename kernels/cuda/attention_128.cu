// Attention for heads of 97 to 128 elements.
#include "attention_plans.cuh"

typedef Plans<sizeof(T), 128, SMALL> Chosen;

ATTENTION_FORWARD(Chosen::Forward)
ATTENTION_KEY_GRADIENTS(Chosen::KeyGradients)
ATTENTION_QUERY_GRADIENTS(Chosen::QueryGradients)
