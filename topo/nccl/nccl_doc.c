/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Creates, finds, changes and frees the document's nodes and attributes. */
#include "topo/nccl/nccl_doc.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct pvn_topo_ndoc *pvn_topo_ndoc_new(void)
{
    return calloc(1, sizeof(struct pvn_topo_ndoc));
}

static void node_free(struct pvn_topo_ndoc_node *node)
{
    for (int i = 0; i < node->n_attrs; i++) {
        free(node->attrs[i].key);
        free(node->attrs[i].value);
    }
    free(node->attrs);
    free(node->subs);
    free(node->name);
    free(node);
}

void pvn_topo_ndoc_free(struct pvn_topo_ndoc *doc)
{
    if (!doc)
        return;
    for (int i = 0; i < doc->n_nodes; i++)
        node_free(doc->nodes[i]);
    free(doc->nodes);
    free(doc);
}

/* Makes room for one more pointer in an array whose capacity doubles at powers of two. */
static int grow(void **array, int count, size_t size)
{
    if (count & (count - 1))
        return 0;
    void *more = realloc(*array, (count ? 2 * (size_t)count : 1) * size);
    if (!more)
        return -ENOMEM;
    *array = more;
    return 0;
}

int pvn_topo_ndoc_attach(struct pvn_topo_ndoc_node *parent, struct pvn_topo_ndoc_node *node, int at)
{
    if (grow((void **)&parent->subs, parent->n_subs, sizeof(parent->subs[0])) < 0)
        return -ENOMEM;
    memmove(parent->subs + at + 1, parent->subs + at,
            (size_t)(parent->n_subs - at) * sizeof(parent->subs[0]));
    parent->subs[at] = node;
    parent->n_subs++;
    node->parent = parent;
    return 0;
}

struct pvn_topo_ndoc_node *pvn_topo_ndoc_add(struct pvn_topo_ndoc *doc,
                                             struct pvn_topo_ndoc_node *parent, const char *name)
{
    struct pvn_topo_ndoc_node *node = calloc(1, sizeof(*node));
    if (!node)
        return NULL;
    node->name = strdup(name);
    if (!node->name || grow((void **)&doc->nodes, doc->n_nodes, sizeof(doc->nodes[0])) < 0 ||
        (parent && pvn_topo_ndoc_attach(parent, node, parent->n_subs) < 0)) {
        node_free(node);
        return NULL;
    }
    doc->nodes[doc->n_nodes++] = node;
    return node;
}

static struct pvn_topo_ndoc_attr *attr_find(const struct pvn_topo_ndoc_node *node, const char *key)
{
    for (int i = 0; i < node->n_attrs; i++)
        if (strcmp(node->attrs[i].key, key) == 0)
            return &node->attrs[i];
    return NULL;
}

const char *pvn_topo_ndoc_get(const struct pvn_topo_ndoc_node *node, const char *key)
{
    const struct pvn_topo_ndoc_attr *attr = attr_find(node, key);
    return attr ? attr->value : NULL;
}

long pvn_topo_ndoc_get_int(const struct pvn_topo_ndoc_node *node, const char *key, long fallback)
{
    const char *text = pvn_topo_ndoc_get(node, key);
    return text ? strtol(text, NULL, 0) : fallback;
}

int pvn_topo_ndoc_set(struct pvn_topo_ndoc_node *node, const char *key, const char *value)
{
    struct pvn_topo_ndoc_attr *attr = attr_find(node, key);
    char *copy = strdup(value);
    if (!copy)
        return -ENOMEM;
    if (!attr) {
        char *name = strdup(key);
        if (!name || grow((void **)&node->attrs, node->n_attrs, sizeof(node->attrs[0])) < 0) {
            free(name);
            free(copy);
            return -ENOMEM;
        }
        attr = &node->attrs[node->n_attrs++];
        attr->key = name;
    } else {
        free(attr->value);
    }
    attr->value = copy;
    return 0;
}

int pvn_topo_ndoc_set_int(struct pvn_topo_ndoc_node *node, const char *key, long value)
{
    char text[24];
    snprintf(text, sizeof(text), "%ld", value);
    return pvn_topo_ndoc_set(node, key, text);
}

int pvn_topo_ndoc_set_if_unset(struct pvn_topo_ndoc_node *node, const char *key, const char *value)
{
    return attr_find(node, key) ? 0 : pvn_topo_ndoc_set(node, key, value);
}

void pvn_topo_ndoc_keep_only(struct pvn_topo_ndoc_node *node, const char *key)
{
    int kept = 0;
    for (int i = 0; i < node->n_attrs; i++) {
        if (strcmp(node->attrs[i].key, key) == 0) {
            node->attrs[kept++] = node->attrs[i];
        } else {
            free(node->attrs[i].key);
            free(node->attrs[i].value);
        }
    }
    node->n_attrs = kept;
}

bool pvn_topo_ndoc_is(const struct pvn_topo_ndoc_node *node, const char *name)
{
    return strcmp(node->name, name) == 0;
}

static bool matches(const struct pvn_topo_ndoc_node *node, const char *name, const char *key,
                    const char *value)
{
    if (strcmp(node->name, name) != 0)
        return false;
    if (!key)
        return true;
    const char *text = pvn_topo_ndoc_get(node, key);
    return text && strcmp(text, value) == 0;
}

struct pvn_topo_ndoc_node *pvn_topo_ndoc_sub_kv(const struct pvn_topo_ndoc_node *node,
                                                const char *name, const char *key,
                                                const char *value)
{
    for (int i = 0; i < node->n_subs; i++)
        if (matches(node->subs[i], name, key, value))
            return node->subs[i];
    return NULL;
}

struct pvn_topo_ndoc_node *pvn_topo_ndoc_sub(const struct pvn_topo_ndoc_node *node,
                                             const char *name)
{
    return pvn_topo_ndoc_sub_kv(node, name, NULL, NULL);
}

struct pvn_topo_ndoc_node *pvn_topo_ndoc_find(const struct pvn_topo_ndoc *doc, const char *name,
                                              const char *key, const char *value)
{
    for (int i = 0; i < doc->n_nodes; i++)
        if (matches(doc->nodes[i], name, key, value))
            return doc->nodes[i];
    return NULL;
}

struct pvn_topo_ndoc *pvn_topo_ndoc_clone(const struct pvn_topo_ndoc *doc)
{
    struct pvn_topo_ndoc *copy = pvn_topo_ndoc_new();
    if (!copy)
        return NULL;
    copy->rccl = doc->rccl;
    for (int i = 0; i < doc->n_nodes; i++) {
        const struct pvn_topo_ndoc_node *from = doc->nodes[i];
        struct pvn_topo_ndoc_node *to = pvn_topo_ndoc_add(copy, NULL, from->name);
        if (!to)
            goto fail;
        to->line = from->line;
        to->added = from->added;
        for (int a = 0; a < from->n_attrs; a++)
            if (pvn_topo_ndoc_set(to, from->attrs[a].key, from->attrs[a].value) < 0)
                goto fail;
    }
    /* Children have their own order, which may differ from that of creation. */
    for (int i = 0; i < doc->n_nodes; i++) {
        const struct pvn_topo_ndoc_node *from = doc->nodes[i];
        for (int s = 0; s < from->n_subs; s++) {
            int j = 0;
            while (doc->nodes[j] != from->subs[s])
                j++;
            if (pvn_topo_ndoc_attach(copy->nodes[i], copy->nodes[j], s) < 0)
                goto fail;
        }
    }
    return copy;
fail:
    pvn_topo_ndoc_free(copy);
    return NULL;
}

static bool starts(const char *text, const char *prefix)
{
    return text && strncmp(text, prefix, strlen(prefix)) == 0;
}

bool pvn_topo_ndoc_gpu_class(const struct pvn_topo_ndoc *doc, const char *class_text)
{
    return starts(class_text, "0x03") || (doc->rccl && starts(class_text, "0x120000"));
}

static bool is_leaf(const struct pvn_topo_ndoc_node *node)
{
    return pvn_topo_ndoc_is(node, "pci") && node->n_subs == 0;
}

/* True for network classes and 0x0c06, InfiniBand's class among the serial buses, which older
 * adapters have. */
bool pvn_topo_ndoc_nic_class(const char *class_text)
{
    return starts(class_text, "0x02") || starts(class_text, "0x0c06");
}

static int by_bus_id(const void *a, const void *b)
{
    const struct pvn_topo_ndoc_node *const *x = a, *const *y = b;
    const char *bx = (*x)->parent ? pvn_topo_ndoc_get((*x)->parent, "busid") : NULL;
    const char *by = (*y)->parent ? pvn_topo_ndoc_get((*y)->parent, "busid") : NULL;
    int order = strcmp(bx ? bx : "", by ? by : "");
    return order ? order : ((*x)->line > (*y)->line) - ((*x)->line < (*y)->line);
}

/* Gives the nodes of one name that lack `key` the lowest numbers not in use, in bus-id order. */
static int number(struct pvn_topo_ndoc *doc, const char *name, const char *key)
{
    int n = 0, err = 0;
    long next = 0;
    struct pvn_topo_ndoc_node **list = calloc((size_t)doc->n_nodes + 1, sizeof(*list));
    if (!list)
        return -ENOMEM;
    for (int i = 0; i < doc->n_nodes; i++)
        if (pvn_topo_ndoc_is(doc->nodes[i], name))
            list[n++] = doc->nodes[i];
    qsort(list, (size_t)n, sizeof(*list), by_bus_id);
    for (int i = 0; i < n && err == 0; i++) {
        if (pvn_topo_ndoc_get(list[i], key))
            continue;
        for (int j = 0; j < n; j++) {
            if (pvn_topo_ndoc_get_int(list[j], key, -1) == next) {
                next++;
                j = -1;
            }
        }
        err = pvn_topo_ndoc_set_int(list[i], key, next);
    }
    free(list);
    return err;
}

int pvn_topo_ndoc_complete(struct pvn_topo_ndoc *doc)
{
    int nics = 0;
    for (int i = 0, n = doc->n_nodes; i < n; i++) {
        struct pvn_topo_ndoc_node *pci = doc->nodes[i];
        const char *class = pvn_topo_ndoc_get(pci, "class");
        bool gpu = is_leaf(pci) && pvn_topo_ndoc_gpu_class(doc, class),
             nic = is_leaf(pci) && pvn_topo_ndoc_nic_class(class);
        if (!gpu && !nic)
            continue;
        struct pvn_topo_ndoc_node *sub = pvn_topo_ndoc_add(doc, pci, gpu ? "gpu" : "nic");
        if (!sub)
            return -ENOMEM;
        sub->added = true;
        sub->line = pci->line;
        if (gpu)
            continue;
        char name[32];
        snprintf(name, sizeof(name), "nic%d", nics++);
        struct pvn_topo_ndoc_node *net = pvn_topo_ndoc_add(doc, sub, "net");
        if (!net || pvn_topo_ndoc_set(net, "name", name) < 0)
            return -ENOMEM;
        net->added = true;
        net->line = pci->line;
    }
    if (number(doc, "gpu", "dev") < 0 || number(doc, "gpu", "rank") < 0 ||
        number(doc, "net", "dev") < 0)
        return -ENOMEM;
    return 0;
}

/* True if NCCL's reader can parse the value. It knows no entities, so a value can hold neither its
 * own quote nor a control character. We always write double quotes. */
static bool writable(const char *value)
{
    for (const unsigned char *p = (const unsigned char *)value; *p; p++)
        if (*p == '"' || *p < 0x20 || *p == 0x7f)
            return false;
    return true;
}

static int write_node(const struct pvn_topo_ndoc_node *node, FILE *out, int indent,
                      const struct pvn_topo_ndoc_node **bad)
{
    int shown = 0;
    if (indent / 2 > PVN_TOPO_NDOC_MAX_DEPTH) {
        *bad = node;
        return -EINVAL;
    }
    fprintf(out, "%*s<%s", indent, "", node->name);
    for (int a = 0; a < node->n_attrs; a++) {
        if (strcmp(node->attrs[a].key, "keep") == 0)
            continue;
        if (!writable(node->attrs[a].value)) {
            *bad = node;
            return -EINVAL;
        }
        fprintf(out, " %s=\"%s\"", node->attrs[a].key, node->attrs[a].value);
    }
    for (int s = 0; s < node->n_subs; s++)
        shown += !node->subs[s]->added;
    fputs(shown ? ">\n" : "/>\n", out);
    if (shown == 0)
        return 0;
    for (int s = 0; s < node->n_subs; s++) {
        int err = node->subs[s]->added ? 0 : write_node(node->subs[s], out, indent + 2, bad);
        if (err < 0)
            return err;
    }
    fprintf(out, "%*s</%s>\n", indent, "", node->name);
    return 0;
}

int pvn_topo_ndoc_write(const struct pvn_topo_ndoc *doc, FILE *out,
                        const struct pvn_topo_ndoc_node **bad)
{
    const struct pvn_topo_ndoc_node *system = pvn_topo_ndoc_find(doc, "system", NULL, NULL);
    *bad = NULL;
    if (!system)
        return -EINVAL;
    int err = write_node(system, out, 0, bad);
    return err ? err : (ferror(out) ? -EIO : 0);
}
