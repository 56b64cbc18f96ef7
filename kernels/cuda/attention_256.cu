// Attention for heads of 129 to 256 elements.
#include "attention_plans.cuh"

typedef Plans<sizeof(T), 256, SMALL> Chosen;

ATTENTION_FORWARD(Chosen::Forward)
ATTENTION_KEY_GRADIENTS(Chosen::KeyGradients)
ATTENTION_QUERY_GRADIENTS(Chosen::QueryGradients)
