// Attention for heads of 65 to 96 elements.
#include "attention_plans.cuh"

typedef Plans<sizeof(T), 96, SMALL> Chosen;

ATTENTION_FORWARD(Chosen::Forward)
ATTENTION_KEY_GRADIENTS(Chosen::KeyGradients)
ATTENTION_QUERY_GRADIENTS(Chosen::QueryGradients)
