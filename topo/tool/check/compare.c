/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "topo/hosts/text.h"
#include "topo/tool/check/compare.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *fact, *label, *remedy;
} known[] = {
    {"kernel", "kernel", "boot the same kernel on all hosts"},
    {"cpu", "CPU", "different hardware: put the job on hosts of one kind"},
    {"gpus", "GPUs", "a GPU is missing or of another model: nvidia-smi and dmesg there"},
    {"nvidia-driver", "NVIDIA driver", "install the same version on all hosts"},
    {"rdma-devices", "RDMA devices", "a device is missing or has another name: rdma link, dmesg"},
    {"nic-driver", "driver of the NIC", "install the same driver on all hosts"},
    {"firmware", "firmware of the NIC", "bring the adapters to the same firmware"},
    {"rate", "rate of the port", "look at cable, switch port and link speed"},
    {"mtu", "MTU",
     "set the same MTU on the interface, its peers and every switch port between them"},
    {"gid-index", "GID index",
     "set NCCL_IB_GID_INDEX for each host, or give all interfaces "
     "addresses of the same kinds in the same order"},
    {"gid-type", "GID type", "use RoCE v2 on all hosts"},
    {"link", "PCIe link", "reseat the card, or use the slot that the others use"},
    {"topology", "topology",
     "compare the hosts by pvn-topo diff; cards are in other slots, or the "
     "BIOS or hypervisor shows another layout"},
    {"memlock", "limit of locked memory",
     "set memlock unlimited in limits.conf, or "
     "LimitMEMLOCK=infinity in the unit, on all hosts"},
    {"plugin", "version of the plugin", "install the same plugin on all hosts"},
    {"plugin-sha256", "plugin's file", "install the same build on all hosts"},
    {"key", "the job's key",
     "the same file of NCCL_PVRDMA_KEY_FILE on all hosts, which its owner alone may read"},
    {"environment", "environment of the processes", "set NCCL's variables for all ranks alike"},
    {"shell", "environment of the shell", "set NCCL's variables alike in the profiles"},
    {"nccl.conf", "NCCL's configuration files",
     "make /etc/nccl.conf, ~/.nccl.conf and the file of NCCL_CONF_FILE alike"},
};

const char *compare_label(const char *fact)
{
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (strcmp(known[i].fact, fact) == 0)
            return known[i].label;
    return fact;
}

const char *compare_remedy(const char *fact)
{
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (strcmp(known[i].fact, fact) == 0)
            return known[i].remedy;
    return "make them alike";
}

static bool is_variable(const char *fact)
{
    return strcmp(fact, "environment") == 0 || strcmp(fact, "shell") == 0 ||
           strcmp(fact, "nccl.conf") == 0;
}

static int rank_of(const char *fact)
{
    int i = 0;
    while (i < (int)(sizeof(known) / sizeof(known[0])) && strcmp(known[i].fact, fact) != 0)
        i++;
    return i;
}

static int by_key(const struct compare_fact *a, const struct compare_fact *b)
{
    int c = rank_of(a->fact) - rank_of(b->fact);
    c = c ? c : strcmp(a->fact, b->fact);
    return c ? c : strverscmp(a->subject, b->subject);
}

static int in_order(const void *a, const void *b)
{
    const struct compare_fact *x = a, *y = b;
    int c = by_key(x, y);
    if (c == 0 && (!x->value || !y->value))
        c = !x->value - !y->value;
    else if (c == 0)
        c = strcmp(x->value, y->value);
    return c ? c : x->host - y->host;
}

/* ---- reading ---- */

static const char *text_of(const json_t *o, const char *key)
{
    return json_string_value(json_object_get(o, key));
}

static int add_fact(struct compare *c, int *cap, struct compare_fact f)
{
    if (c->facts == *cap) {
        int more = *cap ? 2 * *cap : 1024;
        struct compare_fact *list = realloc(c->fact, (size_t)more * sizeof(*list));
        if (!list)
            return -ENOMEM;
        c->fact = list;
        *cap = more;
    }
    c->fact[c->facts++] = f;
    return 0;
}

static int read_facts(struct compare *c)
{
    int cap = 0, rc = 0;
    for (int i = 0; i < c->answers; i++) {
        const json_t *facts = json_object_get(c->answer[i].doc, "facts"), *o;
        size_t k;
        c->hosts += json_is_array(facts);
        json_array_foreach(facts, k, o)
        {
            const char *subject = text_of(o, "subject");
            struct compare_fact f = {text_of(o, "fact"), subject ? subject : "",
                                     text_of(o, "value"), i};
            rc = rc == 0 && f.fact ? add_fact(c, &cap, f) : rc;
        }
    }
    if (c->facts)
        qsort(c->fact, (size_t)c->facts, sizeof(*c->fact), in_order);
    return rc;
}

/* Adds "unset" for a variable that only some hosts set, on the others that show their variables. */
static int add_unset(struct compare *c)
{
    bool *has = calloc((size_t)c->answers + 1, sizeof(*has));
    int n = c->facts, cap = c->facts, rc = has ? 0 : -ENOMEM;
    for (int i = 0, end; rc == 0 && i < n; i = end) {
        struct compare_fact first = c->fact[i];
        memset(has, 0, (size_t)c->answers * sizeof(*has));
        for (end = i; end < n && by_key(&first, &c->fact[end]) == 0; end++)
            has[c->fact[end].host] = true;
        for (int h = 0; is_variable(first.fact) && h < c->answers && rc == 0; h++) {
            bool shows = false;
            for (int k = 0; k < n && !shows; k++)
                shows = c->fact[k].host == h && strcmp(c->fact[k].fact, first.fact) == 0;
            if (!has[h] && (shows || strcmp(first.fact, "environment") != 0) &&
                json_object_get(c->answer[h].doc, "facts"))
                rc = add_fact(c, &cap,
                              (struct compare_fact){first.fact, first.subject, "not set", h});
        }
    }
    free(has);
    if (c->facts > n)
        qsort(c->fact, (size_t)c->facts, sizeof(*c->fact), in_order);
    return rc;
}

/* ---- comparing ---- */

static const char *hosts_of(const struct compare *c, const struct compare_fact *f, int n, char *out,
                            size_t cap)
{
    const char **names = calloc((size_t)n + 1, sizeof(*names));
    out[0] = '\0';
    for (int i = 0; names && i < n; i++)
        names[i] = c->answer[f[i].host].host;
    if (names)
        pvn_topo_hosts_fold(names, n, out, cap);
    free(names);
    return out;
}

static int run_length(const struct compare_fact *f, int n)
{
    int k = 1;
    while (k < n && strcmp(f[k].value, f[0].value) == 0)
        k++;
    return k;
}

/* Describes which hosts have which value. Those of the majority come last and are only counted. */
static void describe(const struct compare *c, const struct compare_key *key, struct compare_odd *o)
{
    struct pvn_topo_text t = {o->text, 0, sizeof(o->text)};
    int most = 0, most_at = 0;
    char hosts[500];
    for (int i = 0, n; i < key->known; i += n) {
        n = run_length(key->at + i, key->known - i);
        most_at = n > most ? i : most_at;
        most = n > most ? n : most;
    }
    o->majority = 2 * most > key->known;
    for (int i = 0, n; i < key->known; i += n) {
        n = run_length(key->at + i, key->known - i);
        if (o->majority && i == most_at)
            continue;
        pvn_topo_text_put(&t, "%s%s: %.300s", t.len ? "; " : "",
                          hosts_of(c, key->at + i, n, hosts, sizeof(hosts)), key->at[i].value);
    }
    if (o->majority)
        pvn_topo_text_put(&t, "; the %d other%s: %.300s", most, most == 1 ? "" : "s",
                          key->at[most_at].value);
}

static int add_odd(struct compare *c, const struct compare_key *key)
{
    struct compare_odd o = {.key = *key, .subjects = 1}, *more;
    describe(c, key, &o);
    snprintf(o.names, sizeof(o.names), "%s", key->at->subject);
    for (int i = 0; i < c->odds; i++) {
        struct compare_odd *b = &c->odd[i];
        size_t used = strlen(b->names);
        /* Variables are not merged, because each has a name of its own. */
        if (strcmp(b->key.at->fact, key->at->fact) != 0 || strcmp(b->text, o.text) != 0 ||
            is_variable(key->at->fact))
            continue;
        if (b->subjects++ < 4)
            snprintf(b->names + used, sizeof(b->names) - used, ", %s", key->at->subject);
        return 0;
    }
    more = realloc(c->odd, ((size_t)c->odds + 1) * sizeof(*more));
    if (!more)
        return -ENOMEM;
    c->odd = more;
    c->odd[c->odds++] = o;
    return 0;
}

static int add_missing(struct compare *c, const char *text)
{
    char **more = realloc(c->missing, ((size_t)c->n_missing + 1) * sizeof(*more));
    if (more)
        c->missing = more;
    if (!more || !(c->missing[c->n_missing] = strdup(text)))
        return -ENOMEM;
    c->n_missing++;
    return 0;
}

/* Reports interfaces that hosts have but did not compare. */
static int say_left_out(struct compare *c, const struct compare_key *key)
{
    char hosts[500], text[2000];
    int rc = 0;
    for (int i = 0, n; rc == 0 && i < key->known; i += n) {
        n = run_length(key->at + i, key->known - i);
        snprintf(text, sizeof(text),
                 "interfaces that the plugin does not take by itself (NCCL_SOCKET_IFNAME): "
                 "%.1000s on %s",
                 key->at[i].value, hosts_of(c, key->at + i, n, hosts, sizeof(hosts)));
        rc = add_missing(c, text);
    }
    return rc;
}

/* Reports an interface that only some hosts have. */
static int say_not_everywhere(struct compare *c, const struct compare_key *key)
{
    char hosts[500], text[900];
    snprintf(text, sizeof(text), "%s of %s: it is only on %s", compare_label(key->at->fact),
             key->at->subject, hosts_of(c, key->at, key->n, hosts, sizeof(hosts)));
    return add_missing(c, text);
}

static int compare_key(struct compare *c, const struct compare_key *key)
{
    char hosts[500], text[900];
    int rc = 0;
    if (strcmp(key->at->fact, "left-out") == 0)
        return say_left_out(c, key);
    if (strcmp(key->at->fact, "mtu") == 0 && key->n < c->hosts)
        rc = say_not_everywhere(c, key);
    if (rc == 0 && key->known < key->n) {
        snprintf(text, sizeof(text), "%s%s%s: not readable on %s", compare_label(key->at->fact),
                 key->at->subject[0] ? " of " : "", key->at->subject,
                 hosts_of(c, key->at + key->known, key->n - key->known, hosts, sizeof(hosts)));
        rc = add_missing(c, text);
    }
    if (rc == 0 && key->known > 1 && run_length(key->at, key->known) < key->known)
        return add_odd(c, key);
    c->alike += key->known > 1;
    return rc;
}

/* Reports hosts whose processes' variables are not visible. */
static int say_no_environment(struct compare *c)
{
    struct compare_fact *without = calloc((size_t)c->answers + 1, sizeof(*without));
    char hosts[500], text[700];
    int n = 0, rc = without ? 0 : -ENOMEM;
    for (int h = 0; rc == 0 && h < c->answers; h++) {
        bool shows = !json_object_get(c->answer[h].doc, "facts");
        for (int k = 0; k < c->facts && !shows; k++)
            shows = c->fact[k].host == h && strcmp(c->fact[k].fact, "environment") == 0;
        if (!shows)
            without[n++] = (struct compare_fact){.host = h};
    }
    if (n > 0) {
        snprintf(text, sizeof(text),
                 "NCCL's variables of processes: none uses the plugin, or it is another user's, on "
                 "%s",
                 hosts_of(c, without, n, hosts, sizeof(hosts)));
        rc = add_missing(c, text);
    }
    free(without);
    return rc;
}

int compare_make(const struct tool_answer *answer, int n, struct compare *c)
{
    int rc;
    memset(c, 0, sizeof(*c));
    c->answer = answer;
    c->answers = n;
    rc = read_facts(c);
    rc = rc == 0 ? add_unset(c) : rc;
    for (int i = 0; rc == 0 && i < c->facts;) {
        struct compare_key key = {.at = &c->fact[i]};
        for (; i < c->facts && by_key(key.at, &c->fact[i]) == 0; i++, key.n++)
            key.known += c->fact[i].value != NULL;
        rc = compare_key(c, &key);
    }
    rc = rc == 0 ? say_no_environment(c) : rc;
    for (int i = 0; rc == 0 && i < n; i++) {
        char text[400];
        if (!answer[i].doc || json_object_get(answer[i].doc, "facts"))
            continue;
        snprintf(text, sizeof(text), "%s: its pvn-topo is of a version whose check has no facts",
                 answer[i].host);
        rc = add_missing(c, text);
    }
    return rc;
}

void compare_free(struct compare *c)
{
    for (int i = 0; i < c->n_missing; i++)
        free(c->missing[i]);
    free(c->missing);
    free(c->fact);
    free(c->odd);
    memset(c, 0, sizeof(*c));
}
