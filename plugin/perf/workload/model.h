/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The gradients of real models: parameter shapes in the framework's order of registration, and
 * their grouping into all-reduces as by PyTorch's DistributedDataParallel.
 */
#ifndef PVN_PERF_MODEL_H
#define PVN_PERF_MODEL_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* How a training step moves the model between the ranks. */
enum pvn_traffic {
    PVN_DDP,  /* every rank has all parameters: an all-reduce for each bucket of gradients */
    PVN_FSDP, /* every rank has a share of each unit: all-gathers and reduce-scatters */
    PVN_MOE   /* every rank has some of the experts: all-to-alls of tokens (moe.h) */
};

struct pvn_param_shape {
    char name[56];
    int unit;        /* FSDP: 0 is the root, layer i is i + 1 */
    uint32_t dim[4]; /* unused ones are 1 */
    uint64_t count;  /* elements: the product */
};

struct pvn_model {
    const char *name;
    enum pvn_traffic traffic;
    struct pvn_param_shape *param;
    int nparams;
    uint64_t count; /* elements of all parameters */
    int unit;       /* during the build: unit of the next parameter */
};

struct pvn_bucket {
    uint64_t count; /* elements */
    int nparams;
};

/* "resnet50, bert-large, gpt2, llama2-7b and mixtral-8x7b", for messages. */
const char *pvn_model_names(void);
/* The model whose name is most similar to an unknown one, or NULL. */
const char *pvn_model_suggest(const char *name);

/* 1 if `name` is a model with that traffic. */
int pvn_model_is(const char *name, enum pvn_traffic traffic);

/* Loads a model. 0, -ENOENT for an unknown name, or -ENOMEM. Free with pvn_model_free. */
int pvn_model_load(const char *name, struct pvn_model *m);
void pvn_model_free(struct pvn_model *m);

/*
 * Buckets of float32 gradients in the order their all-reduces start. `count`: elements per
 * parameter in registration order. Caps in bytes; DDP's are PVN_DDP_FIRST_CAP and PVN_DDP_CAP.
 * `out` has room for n buckets. Returns their number.
 *
 * Gradients are taken from the last parameter to the first. The backward pass computes them in this
 * order, and DDP rebuilds its buckets in it after the first step. A bucket is closed once it has
 * reached its cap, so it may be larger (torch/csrc/distributed/c10d/reducer.cpp,
 * compute_bucket_assignment_by_size, and torch/nn/parallel/distributed.py of PyTorch 2.x).
 */
#define PVN_DDP_FIRST_CAP (1024u * 1024u)
#define PVN_DDP_CAP       (25u * 1024u * 1024u)
int pvn_ddp_buckets(const uint64_t *count, int n, uint64_t first_cap, uint64_t cap,
                    struct pvn_bucket *out);

/* The buckets of a whole model with DDP's caps; *out is malloc'ed. Number of buckets or -ENOMEM. */
int pvn_model_buckets(const struct pvn_model *m, struct pvn_bucket **out);

/*
 * One collective of a training step under FSDP. A unit (the root, or a layer) is gathered before
 * its forward pass. It is gathered again before its backward pass, except for the root, which
 * stays. Then its gradients are reduced and scattered.
 */
struct pvn_fsdp_op {
    int reduce;   /* a reduce-scatter; else an all-gather */
    int backward; /* belongs to the backward pass */
    int unit;
    uint64_t count; /* parameters of the unit */
};

/* The step of a model with its first `layers` layers (0: all); *out is malloc'ed. Returns the
 * number of collectives, or -ENOMEM. */
int pvn_fsdp_step(const struct pvn_model *m, int layers, struct pvn_fsdp_op **out);

#ifdef __cplusplus
}
#endif

#endif
