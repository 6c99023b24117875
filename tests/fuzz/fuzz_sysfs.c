/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: a machine's files, one per line ("PATH=CONTENT", "PATH->LINK"), read into the
 * model. Besides not crashing: the tree has no loop, every index is in range, every text is
 * printable, distances are the same in both directions, and the checks and remedies end. */
#include "config.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fuzz/fuzz.h"
#include "topo/capture/gather.h"
#include "topo/pvn_topo.h"

enum {
    MAX_RECORDS = 2048,
    PAIRS_OF = 12, /* functions whose distances are compared */
};

static void require_text(const char *text)
{
    for (; *text != '\0'; text++)
        fuzz_require(*text >= 0x20 && *text <= 0x7e, "texts are printable");
}

static void require_index(int i, int n)
{
    fuzz_require(i >= -1 && i < n, "indexes are in range");
}

/* Replaces "\xHH" and "\n" in the content, in place. */
static size_t unescape(char *s)
{
    char *out = s, *start = s;

    while (*s != '\0') {
        if (s[0] == '\\' && s[1] == 'n') {
            *out++ = '\n';
            s += 2;
        } else if (s[0] == '\\' && s[1] == 'x' && s[2] != '\0' && s[3] != '\0') {
            char hex[3] = {s[2], s[3], '\0'};

            *out++ = (char)strtol(hex, NULL, 16);
            s += 4;
        } else {
            *out++ = *s++;
        }
    }
    return (size_t)(out - start);
}

static int parse_line(char *line, struct pvn_topo_record *r)
{
    char *link = strstr(line, "->"), *eq = strchr(line, '=');
    char *value = link != NULL && (eq == NULL || link < eq) ? link : eq;

    if (line[0] != '/' || value == NULL)
        return 0;
    r->type = value == link ? PVN_TOPO_FS_LINK : PVN_TOPO_FS_FILE;
    r->path = line;
    r->data = value + (value == link ? 2 : 1);
    *value = '\0';
    r->len = r->type == PVN_TOPO_FS_FILE ? unescape(r->data) : strlen(r->data);
    return 1;
}

/* Makes the image of a tar file with those lines. NULL if it cannot be made (a name is too
 * long). */
static void *build_image(char *text, size_t *size)
{
    static struct pvn_topo_record records[MAX_RECORDS];
    static struct pvn_topo_record *order[MAX_RECORDS];
    void *image = NULL;
    char *rest, *line;
    struct stat st;
    int n = 0, fd;

    for (line = strtok_r(text, "\n", &rest); line != NULL && n < MAX_RECORDS;
         line = strtok_r(NULL, "\n", &rest)) {
        if (parse_line(line, &records[n])) {
            order[n] = &records[n];
            n++;
        }
    }
    fd = memfd_create("fuzz", 0);
    fuzz_require(fd >= 0, "a file in memory");
    if (pvn_topo_tar_write(fd, order, n) == 0 && fstat(fd, &st) == 0) {
        *size = (size_t)st.st_size;
        image = malloc(*size);
        fuzz_require(pread(fd, image, *size, 0) == (ssize_t)*size, "it reads back");
    }
    close(fd);
    return image;
}

static void check_tree(const struct pvn_topo *t)
{
    for (int i = 0; i < t->npci; i++) {
        const struct pvn_topo_pci *p = &t->pci[i];
        int depth = 0;

        require_index(p->parent, t->npci);
        require_index(p->physfn, t->npci);
        require_index(p->root, t->nroots);
        for (int up = p->parent; up >= 0; up = t->pci[up].parent)
            fuzz_require(++depth <= t->npci, "parents do not close to a loop");
        fuzz_require(depth == p->depth, "the depth is the number of bridges above");
        fuzz_require((p->root < 0) == ((p->flags & PVN_TOPO_PCI_NO_PATH) != 0),
                     "a place has a root");
        require_text(p->bdf);
        require_text(p->driver);
        require_text(p->numa_text);
        require_text(p->link.speed_max_text);
    }
    for (int i = 0; i < t->npci && i < PAIRS_OF; i++) {
        for (int k = 0; k < t->npci && k < PAIRS_OF; k++) {
            struct pvn_topo_distance d, back;

            pvn_topo_find_distance(t, i, k, &d);
            pvn_topo_find_distance(t, k, i, &back);
            fuzz_require(d.smi == back.smi && d.seen == back.seen && d.trust == back.trust &&
                             d.hops == back.hops && d.common == back.common,
                         "distances are symmetric");
            require_text(d.reason);
        }
    }
}

static void check_devices(const struct pvn_topo *t)
{
    for (int i = 0; i < t->nnets; i++) {
        require_index(t->nets[i].pci, t->npci);
        require_index(t->nets[i].master, t->nnets);
        require_index(t->nets[i].lower, t->nnets);
        require_index(t->nets[i].active, t->nnets);
        require_text(t->nets[i].name);
        require_text(t->nets[i].address);
    }
    for (int i = 0; i < t->nrdmas; i++) {
        require_index(t->rdmas[i].pci, t->npci);
        require_text(t->rdmas[i].name);
        for (int p = 0; p < t->rdmas[i].nports; p++) {
            const struct pvn_topo_rdma_port *port = &t->rdmas[i].ports[p];
            char why[128];
            bool usable;
            int index = pvn_topo_gid_pick(port, &usable, why, sizeof(why));

            require_index(port->netdev, t->nnets);
            fuzz_require(index >= -1 && (index < port->gid_table_len || index <= 0),
                         "a picked GID is in the table");
            require_text(why);
        }
    }
    for (int i = 0; i < t->ngpus; i++)
        fuzz_require(t->gpus[i].pci >= 0 && t->gpus[i].pci < t->npci, "a GPU is a function");
}

static void check_rows(const struct pvn_topo *t)
{
    struct pvn_topo_remedy remedies[16];
    struct pvn_topo_checks rows;

    fuzz_require(pvn_topo_run_checks(t, NULL, 0, &rows) == 0, "the checks run");
    for (int i = 0; i < rows.n; i++) {
        require_text(rows.rows[i].text);
        require_text(rows.rows[i].subject);
        fuzz_require(rows.rows[i].text[0] != '\0', "a row says something");
        fuzz_require(rows.rows[i].level != PVN_TOPO_LEVEL_FAIL || rows.rows[i].remedy[0] != '\0',
                     "a failure has a remedy");
    }
    pvn_topo_checks_free(&rows);
    fuzz_require(pvn_topo_guest_remedies(t, remedies, 16) <= 16, "there are few remedies");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    struct pvn_topo_err err = {""};
    struct pvn_topo *t = NULL;
    size_t bytes = 0;
    void *image;
    int rc;

    memcpy(text, data, size);
    text[size] = '\0';
    image = build_image(text, &bytes);
    if (image != NULL) {
        rc = pvn_topo_load_tar(image, bytes, NULL, &t, &err);
        fuzz_require((rc == 0) == (t != NULL), "a model or an error");
        fuzz_require(rc == 0 || err.text[0] != '\0', "an error has its reason");
        if (t != NULL) {
            fuzz_require(t->nnotes <= 64, "notes are bounded");
            check_tree(t);
            check_devices(t);
            check_rows(t);
            pvn_topo_free(t);
        }
    }
    free(image);
    free(text);
    return 0;
}
