// Attention for rows of 1 to 32 numbers.
#include "attention_plans.cuh"

typedef Plans<sizeof(T), 32, SMALL> Chosen;

ATTENTION_FORWARD(Chosen::Forward)
ATTENTION_KEY_GRADIENTS(Chosen::KeyGradients)
ATTENTION_QUERY_GRADIENTS(Chosen::QueryGradients)
