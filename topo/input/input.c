/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Which form an input has, and the reader of each. */
#include "topo/input/input.h"

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void pvn_topo_input_free(struct pvn_topo_input *in)
{
    free(in->data);
    *in = (struct pvn_topo_input){.kind = PVN_TOPO_INPUT_TAR};
}

/* Byte order mark and blanks. */
static size_t skip_blank(const char *data, size_t len)
{
    size_t at = len >= 3 && memcmp(data, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
    while (at < len &&
           (data[at] == ' ' || data[at] == '\t' || data[at] == '\r' || data[at] == '\n'))
        at++;
    return at;
}

/* A PCI address and nothing else on the first line that is not empty. */
static bool is_esxcli(const char *text)
{
    char line[PVN_TOPO_BDF_MAX + 1];
    uint32_t domain;
    uint8_t bus, dev, fn;
    size_t n = strcspn(text, "\r\n \t");
    if (n >= sizeof(line) || (text[n] && !strchr("\r\n", text[n])))
        return false;
    memcpy(line, text, n);
    line[n] = '\0';
    return pvn_topo_bdf_parse(line, &domain, &bus, &dev, &fn) == 0;
}

enum pvn_topo_input_kind pvn_topo_input_recognise(const char *data, size_t len)
{
    size_t at = skip_blank(data, len);
    if (at == len)
        return PVN_TOPO_INPUT_TAR;
    if (data[at] == '<')
        return PVN_TOPO_INPUT_NCCL_XML;
    return is_esxcli(data + at) ? PVN_TOPO_INPUT_ESXCLI : PVN_TOPO_INPUT_TAR;
}

int pvn_topo_input_read(const char *path, int wait_s, struct pvn_topo_input *in,
                        struct pvn_topo_err *err)
{
    int code = pvn_topo_input_slurp(path, wait_s, in, err);
    if (code == 0 && (code = pvn_topo_input_unpack(path, in, err)) < 0)
        pvn_topo_input_free(in);
    if (code == 0)
        in->kind = pvn_topo_input_recognise(in->data, in->len);
    return code;
}

static int load_tar(const struct pvn_topo_input *in, const char *name, struct pvn_topo **topo,
                    struct pvn_topo_err *err)
{
    char reason[sizeof(err->text)];
    int code = in->len < 512 ? -EINVAL : pvn_topo_load_tar(in->data, in->len, NULL, topo, err);
    if (in->len < 512)
        snprintf(err->text, sizeof(err->text),
                 "none of the forms that are read here: a tar, NCCL's XML, esxcli's list");
    if (code < 0) {
        memcpy(reason, err->text, sizeof(reason));
        snprintf(err->text, sizeof(err->text), "%.150s: %.300s", name, reason);
        return code;
    }
    free((*topo)->source);
    (*topo)->source = strdup(name);
    if ((*topo)->source)
        return 0;
    pvn_topo_free(*topo);
    *topo = NULL;
    snprintf(err->text, sizeof(err->text), "out of memory");
    return -ENOMEM;
}

int pvn_topo_input_machine(const struct pvn_topo_input *in, const char *name,
                           struct pvn_topo **topo, struct pvn_topo_err *err)
{
    switch (in->kind) {
    case PVN_TOPO_INPUT_ESXCLI:
        return pvn_topo_load_esxcli(in->data, in->len, name, topo, err);
    default:
        return load_tar(in, name, topo, err);
    }
}
