#pragma once
// Modules: what a network is made of, its parameters, names and saved state.
#include "everyo/nn/images.h"
#include "everyo/nn/initialisation.h"
#include "everyo/nn/layers.h"
#include "everyo/nn/losses.h"
#include "everyo/nn/metrics.h"
#include "everyo/nn/module.h"
#include "everyo/nn/norms.h"
#include "everyo/nn/parameter.h"
#include "everyo/nn/pools.h"
#include "everyo/nn/sequential.h"
#include "everyo/nn/visitor.h"
