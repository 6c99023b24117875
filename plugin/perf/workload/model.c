/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "perf/workload/model.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/suggest.h"

#define MAX_PARAMS 1024

/* A zero dimension ends the shape. */
static void add_param(struct pvn_model *m, uint32_t d0, uint32_t d1, uint32_t d2, uint32_t d3,
                      const char *fmt, ...) __attribute__((format(printf, 6, 7)));

static void add_param(struct pvn_model *m, uint32_t d0, uint32_t d1, uint32_t d2, uint32_t d3,
                      const char *fmt, ...)
{
    struct pvn_param_shape *p = &m->param[m->nparams++];
    const uint32_t dim[4] = {d0, d1, d2, d3};
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(p->name, sizeof(p->name), fmt, ap);
    va_end(ap);
    p->unit = m->unit;
    p->count = 1;
    for (int i = 0; i < 4; i++) {
        p->dim[i] = dim[i] ? dim[i] : 1;
        p->count *= p->dim[i];
    }
    m->count += p->count;
}

static void add_linear(struct pvn_model *m, uint32_t out, uint32_t in, const char *name)
{
    add_param(m, out, in, 0, 0, "%s.weight", name);
    add_param(m, out, 0, 0, 0, "%s.bias", name);
}

static void add_norm(struct pvn_model *m, uint32_t n, const char *name)
{
    add_param(m, n, 0, 0, 0, "%s.weight", name);
    add_param(m, n, 0, 0, 0, "%s.bias", name);
}

/*
 * BERT-Large for pre-training (masked-word and next-sentence heads), uncased vocabulary: Devlin et
 * al., arXiv:1810.04805, L=24 H=1024 A=16; names and order of Hugging Face transformers'
 * BertForPreTraining, whose decoder shares the word embeddings. 336,226,108 parameters.
 */
static void build_bert_large(struct pvn_model *m)
{
    enum { VOCAB = 30522, H = 1024, FF = 4096, LAYERS = 24 };
    char name[64];

    add_param(m, VOCAB, H, 0, 0, "embeddings.word_embeddings.weight");
    add_param(m, 512, H, 0, 0, "embeddings.position_embeddings.weight");
    add_param(m, 2, H, 0, 0, "embeddings.token_type_embeddings.weight");
    add_norm(m, H, "embeddings.LayerNorm");
    for (int i = 0; i < LAYERS; i++) {
        static const struct {
            const char *name;
            uint32_t out, in; /* in = 0: a norm */
        } part[] = {
            {"attention.self.query", H, H},
            {"attention.self.key", H, H},
            {"attention.self.value", H, H},
            {"attention.output.dense", H, H},
            {"attention.output.LayerNorm", H, 0},
            {"intermediate.dense", FF, H},
            {"output.dense", H, FF},
            {"output.LayerNorm", H, 0},
        };

        for (size_t k = 0; k < sizeof(part) / sizeof(part[0]); k++) {
            snprintf(name, sizeof(name), "layer.%d.%s", i, part[k].name);
            if (part[k].in)
                add_linear(m, part[k].out, part[k].in, name);
            else
                add_norm(m, part[k].out, name);
        }
    }
    add_linear(m, H, H, "pooler.dense");
    add_param(m, VOCAB, 0, 0, 0, "cls.predictions.bias");
    add_linear(m, H, H, "cls.predictions.transform.dense");
    add_norm(m, H, "cls.predictions.transform.LayerNorm");
    add_linear(m, 2, H, "cls.seq_relationship");
}

/*
 * GPT-2 small: Radford et al. 2019, 12 layers of width 768; names, order and (in, out) weights of
 * Hugging Face transformers' GPT2LMHeadModel, whose head shares wte. 124,439,808 parameters.
 */
static void build_gpt2(struct pvn_model *m)
{
    enum { VOCAB = 50257, H = 768, LAYERS = 12 };

    add_param(m, VOCAB, H, 0, 0, "wte.weight");
    add_param(m, 1024, H, 0, 0, "wpe.weight");
    for (int i = 0; i < LAYERS; i++) {
        add_param(m, H, 0, 0, 0, "h.%d.ln_1.weight", i);
        add_param(m, H, 0, 0, 0, "h.%d.ln_1.bias", i);
        add_param(m, H, 3 * H, 0, 0, "h.%d.attn.c_attn.weight", i);
        add_param(m, 3 * H, 0, 0, 0, "h.%d.attn.c_attn.bias", i);
        add_param(m, H, H, 0, 0, "h.%d.attn.c_proj.weight", i);
        add_param(m, H, 0, 0, 0, "h.%d.attn.c_proj.bias", i);
        add_param(m, H, 0, 0, 0, "h.%d.ln_2.weight", i);
        add_param(m, H, 0, 0, 0, "h.%d.ln_2.bias", i);
        add_param(m, H, 4 * H, 0, 0, "h.%d.mlp.c_fc.weight", i);
        add_param(m, 4 * H, 0, 0, 0, "h.%d.mlp.c_fc.bias", i);
        add_param(m, 4 * H, H, 0, 0, "h.%d.mlp.c_proj.weight", i);
        add_param(m, H, 0, 0, 0, "h.%d.mlp.c_proj.bias", i);
    }
    add_norm(m, H, "ln_f");
}

static void add_conv_bn(struct pvn_model *m, uint32_t out, uint32_t in, uint32_t k,
                        const char *conv, const char *bn)
{
    add_param(m, out, in, k, k, "%s.weight", conv);
    add_norm(m, out, bn);
}

/*
 * ResNet-50: He et al., arXiv:1512.03385, table 1; names and order of torchvision's resnet50
 * (torchvision/models/resnet.py). 25,557,032 parameters.
 */
static void build_resnet50(struct pvn_model *m)
{
    static const int blocks[4] = {3, 4, 6, 3};
    uint32_t in = 64;

    add_conv_bn(m, 64, 3, 7, "conv1", "bn1");
    for (int stage = 0; stage < 4; stage++) {
        uint32_t width = 64u << stage, out = 4 * width;

        for (int b = 0; b < blocks[stage]; b++) {
            char name[5][40];

            for (int k = 0; k < 3; k++)
                snprintf(name[k], sizeof(name[k]), "layer%d.%d.conv%d", stage + 1, b, k + 1);
            snprintf(name[3], sizeof(name[3]), "layer%d.%d.bn", stage + 1, b);
            snprintf(name[4], sizeof(name[4]), "layer%d.%d.downsample", stage + 1, b);
            add_conv_bn(m, width, in, 1, name[0], name[3]);
            add_conv_bn(m, width, width, 3, name[1], name[3]);
            add_conv_bn(m, out, width, 1, name[2], name[3]);
            if (b == 0)
                add_conv_bn(m, out, in, 1, name[4], name[4]);
            in = out;
        }
    }
    add_linear(m, 1000, 2048, "fc");
}

/*
 * Llama-2-7B: Touvron et al., arXiv:2307.09288; the widths are those of the published
 * meta-llama/Llama-2-7b-hf's config.json, names and order those of Hugging Face transformers'
 * LlamaForCausalLM. Each decoder layer is an FSDP unit, as PyTorch's transformer_auto_wrap_policy
 * makes them; embeddings, last norm and head are the root's. 6,738,415,616 parameters.
 */
static void build_llama2_7b(struct pvn_model *m)
{
    enum { VOCAB = 32000, H = 4096, FF = 11008, LAYERS = 32 };

    add_param(m, VOCAB, H, 0, 0, "model.embed_tokens.weight");
    for (int i = 0; i < LAYERS; i++) {
        static const char *const attention[] = {"q", "k", "v", "o"};

        m->unit = i + 1;
        for (int k = 0; k < 4; k++)
            add_param(m, H, H, 0, 0, "model.layers.%d.self_attn.%s_proj.weight", i, attention[k]);
        add_param(m, FF, H, 0, 0, "model.layers.%d.mlp.gate_proj.weight", i);
        add_param(m, FF, H, 0, 0, "model.layers.%d.mlp.up_proj.weight", i);
        add_param(m, H, FF, 0, 0, "model.layers.%d.mlp.down_proj.weight", i);
        add_param(m, H, 0, 0, 0, "model.layers.%d.input_layernorm.weight", i);
        add_param(m, H, 0, 0, 0, "model.layers.%d.post_attention_layernorm.weight", i);
    }
    m->unit = 0;
    add_param(m, H, 0, 0, 0, "model.norm.weight");
    add_param(m, VOCAB, H, 0, 0, "lm_head.weight");
}

/*
 * Mixtral 8x7B: Jiang et al., arXiv:2401.04088; the widths are those of the published
 * mistralai/Mixtral-8x7B-v0.1's config.json, names and order those of Hugging Face transformers'
 * MixtralForCausalLM. 46,702,792,704 parameters.
 */
static void build_mixtral(struct pvn_model *m)
{
    enum { VOCAB = 32000, H = 4096, KV = 1024, FF = 14336, LAYERS = 32, EXPERTS = 8 };

    add_param(m, VOCAB, H, 0, 0, "model.embed_tokens.weight");
    for (int i = 0; i < LAYERS; i++) {
        m->unit = i + 1;
        add_param(m, H, H, 0, 0, "model.layers.%d.self_attn.q_proj.weight", i);
        add_param(m, KV, H, 0, 0, "model.layers.%d.self_attn.k_proj.weight", i);
        add_param(m, KV, H, 0, 0, "model.layers.%d.self_attn.v_proj.weight", i);
        add_param(m, H, H, 0, 0, "model.layers.%d.self_attn.o_proj.weight", i);
        add_param(m, EXPERTS, H, 0, 0, "model.layers.%d.block_sparse_moe.gate.weight", i);
        for (int e = 0; e < EXPERTS; e++) {
            add_param(m, FF, H, 0, 0, "model.layers.%d.block_sparse_moe.experts.%d.w1.weight", i,
                      e);
            add_param(m, H, FF, 0, 0, "model.layers.%d.block_sparse_moe.experts.%d.w2.weight", i,
                      e);
            add_param(m, FF, H, 0, 0, "model.layers.%d.block_sparse_moe.experts.%d.w3.weight", i,
                      e);
        }
        add_param(m, H, 0, 0, 0, "model.layers.%d.input_layernorm.weight", i);
        add_param(m, H, 0, 0, 0, "model.layers.%d.post_attention_layernorm.weight", i);
    }
    m->unit = 0;
    add_param(m, H, 0, 0, 0, "model.norm.weight");
    add_param(m, VOCAB, H, 0, 0, "lm_head.weight");
}

static const struct {
    const char *name;
    enum pvn_traffic traffic;
    void (*build)(struct pvn_model *m);
} models[] = {
    {"resnet50", PVN_DDP, build_resnet50},
    {"bert-large", PVN_DDP, build_bert_large},
    {"gpt2", PVN_DDP, build_gpt2},
    {"llama2-7b", PVN_FSDP, build_llama2_7b},
    {"mixtral-8x7b", PVN_MOE, build_mixtral},
};

const char *pvn_model_names(void)
{
    return "resnet50, bert-large, gpt2, llama2-7b and mixtral-8x7b";
}

const char *pvn_model_suggest(const char *name)
{
    struct pvn_suggest near;

    pvn_suggest_start(&near, name);
    for (size_t i = 0; i < sizeof(models) / sizeof(models[0]); i++) {
        if (name[0] && strncmp(name, models[i].name, strlen(name)) == 0)
            return models[i].name;
        pvn_suggest_offer(&near, models[i].name);
    }
    return near.best;
}

int pvn_model_is(const char *name, enum pvn_traffic traffic)
{
    for (size_t i = 0; i < sizeof(models) / sizeof(models[0]); i++)
        if (strcmp(name, models[i].name) == 0)
            return models[i].traffic == traffic;
    return 0;
}

int pvn_model_load(const char *name, struct pvn_model *m)
{
    memset(m, 0, sizeof(*m));
    for (size_t i = 0; i < sizeof(models) / sizeof(models[0]); i++) {
        if (strcmp(name, models[i].name) != 0)
            continue;
        m->param = calloc(MAX_PARAMS, sizeof(*m->param));
        if (!m->param)
            return -ENOMEM;
        m->name = models[i].name;
        m->traffic = models[i].traffic;
        models[i].build(m);
        return 0;
    }
    return -ENOENT;
}

void pvn_model_free(struct pvn_model *m)
{
    free(m->param);
    m->param = NULL;
}

int pvn_ddp_buckets(const uint64_t *count, int n, uint64_t first_cap, uint64_t cap,
                    struct pvn_bucket *out)
{
    uint64_t limit = first_cap;
    int nb = 0, open = 0;

    for (int i = n - 1; i >= 0; i--) {
        if (!open)
            out[nb] = (struct pvn_bucket){0};
        open = 1;
        out[nb].count += count[i];
        out[nb].nparams++;
        if (out[nb].count * sizeof(float) >= limit) {
            nb++;
            open = 0;
            limit = cap;
        }
    }
    return nb + open;
}

int pvn_model_buckets(const struct pvn_model *m, struct pvn_bucket **out)
{
    uint64_t *count = malloc(sizeof(*count) * (size_t)m->nparams);
    struct pvn_bucket *b = malloc(sizeof(*b) * (size_t)m->nparams);
    int n = -ENOMEM;

    if (count && b) {
        for (int i = 0; i < m->nparams; i++)
            count[i] = m->param[i].count;
        n = pvn_ddp_buckets(count, m->nparams, PVN_DDP_FIRST_CAP, PVN_DDP_CAP, b);
    }
    free(count);
    if (n < 0)
        free(b);
    else
        *out = b;
    return n;
}

int pvn_fsdp_step(const struct pvn_model *m, int layers, struct pvn_fsdp_op **out)
{
    uint64_t *unit = calloc((size_t)m->nparams, sizeof(*unit)); /* more entries than units */
    struct pvn_fsdp_op *op = calloc(3 * (size_t)m->nparams, sizeof(*op));
    int last = 0, n = 0;

    if (!unit || !op) {
        free(unit);
        free(op);
        return -ENOMEM;
    }
    for (int i = 0; i < m->nparams; i++) {
        int u = m->param[i].unit;

        if (layers && u > layers)
            continue;
        unit[u] += m->param[i].count;
        last = u > last ? u : last;
    }
    for (int u = 0; u <= last; u++)
        op[n++] = (struct pvn_fsdp_op){0, 0, u, unit[u]};
    for (int u = last; u > 0; u--) {
        op[n++] = (struct pvn_fsdp_op){0, 1, u, unit[u]};
        op[n++] = (struct pvn_fsdp_op){1, 1, u, unit[u]};
    }
    op[n++] = (struct pvn_fsdp_op){1, 1, 0, unit[0]};
    free(unit);
    *out = op;
    return n;
}
