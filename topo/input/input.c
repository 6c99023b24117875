/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Recognises the form of an input and calls the reader of that form. */
#include "topo/input/input.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Skips a byte order mark and blanks. */
static size_t skip_blank(const char *data, size_t len)
{
    size_t at = len >= 3 && memcmp(data, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
    while (at < len &&
           (data[at] == ' ' || data[at] == '\t' || data[at] == '\r' || data[at] == '\n'))
        at++;
    return at;
}

/* True if a line starts with a PCI address; *rest is the text after it. */
static bool starts_with_address(const char *line, const char **rest)
{
    char bdf[PVN_TOPO_BDF_MAX + 1];
    uint32_t domain;
    uint8_t bus, dev, fn;
    size_t n = strcspn(line, "\r\n \t");
    if (n == 0 || n >= sizeof(bdf))
        return false;
    memcpy(bdf, line, n);
    bdf[n] = '\0';
    *rest = line + n;
    return pvn_topo_bdf_parse(bdf, &domain, &bus, &dev, &fn) == 0;
}

/* True if hwloc's element is the outermost one, after declarations and comments. */
static bool is_hwloc(const char *text)
{
    const char *system = strstr(text, "<system"), *topology = strstr(text, "<topology");
    const char *doctype = strstr(text, "<!DOCTYPE topology");
    const char *first = doctype ? doctype : topology;
    return first && (!system || first < system);
}

/* Distinguishes esxcli from lspci: esxcli ends the line after the address, lspci has a class there.
 * Either may be quoted inside a text, after other lines. No text contains a NUL. */
static enum pvn_topo_input_kind kind_of_text(const char *data, size_t len)
{
    const char *rest;
    if (memchr(data, '\0', len))
        return PVN_TOPO_INPUT_TAR;
    for (const char *line = data; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        /* Skip the marks of a quoted or indented line. */
        if (!starts_with_address(line + strspn(line, "> |\t"), &rest))
            continue;
        const char *colon = strstr(rest, ": ");
        if (*rest == '\0' || *rest == '\r' || *rest == '\n')
            return PVN_TOPO_INPUT_ESXCLI;
        if (colon && colon < rest + strcspn(rest, "\n"))
            return PVN_TOPO_INPUT_LSPCI;
    }
    return PVN_TOPO_INPUT_TAR;
}

enum pvn_topo_input_kind pvn_topo_input_recognise(const char *data, size_t len)
{
    size_t at = skip_blank(data, len);
    if (at == len)
        return PVN_TOPO_INPUT_TAR;
    enum pvn_topo_input_kind text = kind_of_text(data + at, len - at);
    /* A prompt may begin with a bracket, and a page with a tag. */
    if (text == PVN_TOPO_INPUT_LSPCI && !strstr(data + at, "<system"))
        return text;
    if (data[at] == '<')
        return is_hwloc(data + at) ? PVN_TOPO_INPUT_HWLOC_XML : PVN_TOPO_INPUT_NCCL_XML;
    if (data[at] == '{' || data[at] == '[')
        return PVN_TOPO_INPUT_JSON;
    return text;
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

/* True if the data has a tar's magic number. Very old tars have none in their first header, but
 * still load. */
static bool has_tar_magic(const struct pvn_topo_input *in)
{
    return in->len >= 512 && memcmp(in->data + 257, "ustar", 5) == 0;
}

static int load_tar(const struct pvn_topo_input *in, const char *name, struct pvn_topo **topo,
                    struct pvn_topo_err *err)
{
    char reason[sizeof(err->text)];
    int code = in->len < 512 ? -EINVAL : pvn_topo_load_tar(in->data, in->len, NULL, topo, err);
    if (code == -EINVAL && !has_tar_magic(in))
        snprintf(err->text, sizeof(err->text),
                 "none of the forms that are read here: a tar, XML of NCCL or hwloc, the text "
                 "of lspci or esxcli, rdma_topo's dump");
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
    case PVN_TOPO_INPUT_NCCL_XML:
        return pvn_topo_load_nccl(in->data, in->len, name, topo, err);
    case PVN_TOPO_INPUT_HWLOC_XML:
        return pvn_topo_load_hwloc(in->data, in->len, name, topo, err);
    case PVN_TOPO_INPUT_LSPCI:
        return pvn_topo_load_lspci(in->data, in->len, name, topo, err);
    case PVN_TOPO_INPUT_JSON:
        return pvn_topo_load_rdma_topo(in->data, in->len, name, topo, err);
    case PVN_TOPO_INPUT_ESXCLI:
        return pvn_topo_load_esxcli(in->data, in->len, name, topo, err);
    default:
        return load_tar(in, name, topo, err);
    }
}
