# Everything one does with Terral's sources. `make` alone lists it; each works on a fresh machine.

PREFIX ?= /usr/local
CARGO ?= cargo
LOOM = RUSTFLAGS="--cfg loom" $(CARGO) test --profile tests -p terral-tests --test grants \
	--test leaving --test deferral --test lock_model --test leases --test batches --test way \
	--config profile.tests.package.terral-tests.opt-level=3 --target-dir target/loom

.DEFAULT_GOAL := help
.PHONY: help demo test model bench peers soak lint calls fmt man install uninstall clean deps packages release

help: ## list what one can do
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: NEEDED = $(NEEDED_DEMO)
demo: NEEDED_FILES =
demo: deps release ## show on this machine what Terral does
	demo/run.sh

test: deps packages release ## prove it: all tests, then the model of the grant protocol
	$(CARGO) test --profile tests --workspace
	$(LOOM)

model: ## explore the grant protocol alone
	$(LOOM)

bench: release ## measure beside tmpfs and memcpy, into target/benchmarks.md
	target/release/terral bench --markdown target/benchmarks.md

peers: NEEDED = $(NEEDED_PEERS)
peers: NEEDED_FILES = $(NEEDED_FILES_PEERS)
peers: deps release ## measure beside sshfs, GlusterFS and NFS, into docs/benchmarks.md (root)
	demo/peers.py --json target/peers.json --markdown docs/benchmarks.md

soak: release ## the larger searches, then all tests in full, again and again, with other seeds and ten times the kills (SECONDS_LONG=600, TERRAL_SEEDS=200)
	TERRAL_EXPLORE=1 $(CARGO) test --profile tests -p terral-partition -- --nocapture
	@end=$$(( $$(date +%s) + $${SECONDS_LONG:-600} )); rounds=0; \
	while [ $$(date +%s) -lt $$end ]; do \
		: each round has seeds of its own, which no round before had; \
		first=$$(( $$(date +%s) * 1000 )); seeds=$${TERRAL_SEEDS:-200}; \
		test=$$(date +%N | sed 's/^0*//'); \
		echo "soak: TERRAL_FIRST_SEED=$$first TERRAL_SEEDS=$$seeds TERRAL_TEST_SEED=$$test"; \
		TERRAL_FIRST_SEED=$$first TERRAL_SEEDS=$$seeds TERRAL_TEST_SEED=$$test \
			TERRAL_TEST_KILLS=500 TERRAL_TEST_LONG=1 \
			$(CARGO) test --profile tests --workspace --quiet || exit 1; \
		rounds=$$((rounds + 1)); echo "soak: $$rounds rounds passed"; \
	done

lint: ## formatting, clippy, the house's rules, licences and sources of dependencies
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	$(CARGO) test --quiet -p terral-tests --lib --test tidy
	@command -v cargo-deny >/dev/null || { \
		echo "lint: cargo-deny is missing: cargo install --locked cargo-deny" >&2; exit 1; }
	$(CARGO) fetch --quiet
	$(CARGO) deny --offline check bans licenses sources

calls: ## who calls whom in the server, and where that is a circle
	@TERRAL_SHOW_CALLS=1 $(CARGO) test --quiet -p terral-tests --test tidy calls -- --nocapture

fmt: ## format the sources
	$(CARGO) fmt --all

man: release ## write the manual pages and completions to target/man, target/completions
	mkdir -p target/man target/completions
	target/release/terral man target/man
	for shell in bash zsh fish; do \
		target/release/terral completions $$shell > target/completions/terral.$$shell || exit 1; \
	done

install: man ## install under PREFIX (default /usr/local)
	install -D -m 755 target/release/terral $(DESTDIR)$(PREFIX)/bin/terral
	install -D -m 755 target/release/libterral_preload.so \
		$(DESTDIR)$(PREFIX)/lib/libterral_preload.so
	install -D -m 755 target/release/libterral.so $(DESTDIR)$(PREFIX)/lib/libterral.so
	install -D -m 644 target/release/libterral.a $(DESTDIR)$(PREFIX)/lib/libterral.a
	install -D -m 644 src/c/terral.h $(DESTDIR)$(PREFIX)/include/terral.h
	install -d $(DESTDIR)$(PREFIX)/lib/pkgconfig
	sed -e 's|@PREFIX@|$(PREFIX)|' -e "s|@VERSION@|$$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)|" \
		src/c/terral.pc.in > $(DESTDIR)$(PREFIX)/lib/pkgconfig/terral.pc
	chmod 644 $(DESTDIR)$(PREFIX)/lib/pkgconfig/terral.pc
	install -d $(DESTDIR)$(PREFIX)/lib/terral/python/terral
	install -m 644 src/python/terral/*.py $(DESTDIR)$(PREFIX)/lib/terral/python/terral/
	install -d $(DESTDIR)$(PREFIX)/share/man/man1
	install -m 644 target/man/*.1 $(DESTDIR)$(PREFIX)/share/man/man1/
	install -D -m 644 target/completions/terral.bash \
		$(DESTDIR)$(PREFIX)/share/bash-completion/completions/terral
	install -D -m 644 target/completions/terral.zsh \
		$(DESTDIR)$(PREFIX)/share/zsh/site-functions/_terral
	install -D -m 644 target/completions/terral.fish \
		$(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/terral.fish

	install -d $(DESTDIR)$(PREFIX)/share/doc/terral
	install -m 644 README.md CHANGELOG.md LICENSE docs/*.md $(DESTDIR)$(PREFIX)/share/doc/terral/

uninstall: ## remove what `make install` put under PREFIX
	rm -f $(DESTDIR)$(PREFIX)/bin/terral $(DESTDIR)$(PREFIX)/lib/libterral_preload.so \
		$(DESTDIR)$(PREFIX)/lib/libterral.so $(DESTDIR)$(PREFIX)/lib/libterral.a \
		$(DESTDIR)$(PREFIX)/include/terral.h $(DESTDIR)$(PREFIX)/lib/pkgconfig/terral.pc \
		$(DESTDIR)$(PREFIX)/share/man/man1/terral.1 \
		$(DESTDIR)$(PREFIX)/share/man/man1/terral-*.1 \
		$(DESTDIR)$(PREFIX)/share/bash-completion/completions/terral \
		$(DESTDIR)$(PREFIX)/share/zsh/site-functions/_terral \
		$(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/terral.fish
	rm -rf $(DESTDIR)$(PREFIX)/share/doc/terral $(DESTDIR)$(PREFIX)/lib/terral

clean: ## remove what was built
	$(CARGO) clean

# Program, and the package of Debian that has it.
NEEDED_DEMO = gcc:gcc ld:libc6-dev pkg-config:pkg-config mpiexec.mpich:mpich lmp:lammps
NEEDED_PEERS = gcc:gcc ld:libc6-dev ip:iproute2 unshare:util-linux nsenter:util-linux ps:procps \
	python3:python3 ssh:openssh-client sshfs:sshfs glusterfs:glusterfs-client
NEEDED_FILES_PEERS = /usr/sbin/sshd:openssh-server /usr/sbin/glusterd:glusterfs-server \
	/usr/bin/ganesha.nfsd:nfs-ganesha /sbin/rpcbind:rpcbind /usr/include/nfsc/libnfs.h:libnfs-dev \
	/usr/lib/x86_64-linux-gnu/ganesha/libfsalvfs.so:nfs-ganesha-vfs
NEEDED = $(NEEDED_DEMO) ip:iproute2 unshare:util-linux nsenter:util-linux strace:strace \
	rsync:rsync less:less vim:vim git:git perl:perl gfortran:gfortran g++:g++ bc:bc cpio:cpio \
	patch:patch look:bsdextrautils gmx:gromacs sqlite3:sqlite3 getfattr:attr dash:dash bash:bash \
	valgrind:valgrind bindfs:bindfs mpiexec.openmpi:openmpi-bin setpriv:util-linux node:nodejs npm:npm \
	java:default-jre-headless javac:default-jdk-headless Rscript:r-base-core \
	slurmctld:slurmctld slurmd:slurmd srun:slurm-client \
	krb5kdc:krb5-kdc kadmin.local:krb5-admin-server kinit:krb5-user \
	etcd:etcd-server curl:curl openssl:openssl
NEEDED_FILES = /usr/include/x86_64-linux-gnu/mpich/mpi.h:libmpich-dev \
	/usr/lib/x86_64-linux-gnu/openmpi/include/mpi.h:libopenmpi-dev \
	/usr/lib/python3/dist-packages/numpy:python3-numpy \
	/usr/lib/python3/dist-packages/pip:python3-pip \
	/usr/lib/python3/dist-packages/setuptools:python3-setuptools \
	/usr/lib/python3/dist-packages/h5py:python3-h5py \
	/usr/lib/python3/dist-packages/netCDF4:python3-netcdf4 \
	/usr/lib/python3/dist-packages/torch:python3-torch \
	/usr/include/hdf5/mpich/hdf5.h:libhdf5-mpich-dev \
	/usr/include/pnetcdf.h:libpnetcdf-dev /usr/lib/postgresql:postgresql \
	/usr/lib/python3.11/ensurepip:python3-venv \
	/usr/lib/python3.11/test/test_os.py:libpython3.11-testsuite

deps: ## see that what the tests run is there: compilers, MPI, LAMMPS, everyday programs
	@missing=; \
	for one in $(NEEDED); do \
		command -v $${one%:*} >/dev/null || missing="$$missing $${one#*:}"; \
	done; \
	for one in $(NEEDED_FILES); do \
		test -e $${one%:*} || missing="$$missing $${one#*:}"; \
	done; \
	if [ -z "$$missing" ]; then exit 0; fi; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		echo "deps: installing$$missing"; \
		: no service of theirs is started; \
		policy=/usr/sbin/policy-rc.d; \
		trap 'rm -f $$policy; test ! -e $$policy.kept || mv $$policy.kept $$policy' EXIT; \
		trap 'exit 1' INT TERM HUP; \
		test ! -e $$policy || mv $$policy $$policy.kept; \
		printf '#!/bin/sh\nexit 101\n' > $$policy && chmod 755 $$policy; \
		apt-get -qq update && DEBIAN_FRONTEND=noninteractive \
			apt-get -qq install --no-install-recommends -y $$missing && exit 0; \
		echo "deps: apt-get could not install$$missing" >&2; \
	fi; \
	echo "deps: missing:$$missing" >&2; \
	echo "deps: as root: apt-get install$$missing" >&2; \
	echo "deps: going on; the tests that need them say that they are skipped, or fail" >&2

# From PyPI, by version and hash, into a directory that only the tests look into.
PACKAGES = target/test-packages
SCIENCE = tests/programs/science
PIP = /usr/bin/python3 -m pip --quiet --disable-pip-version-check --no-cache-dir

packages: $(PACKAGES)/.complete
$(PACKAGES)/.complete: $(SCIENCE)/packages.txt $(SCIENCE)/sources.txt
	rm -rf $(PACKAGES) && mkdir -p $(PACKAGES)/mpi4py-source
	$(PIP) install --no-deps --require-hashes --only-binary=:all: --root-user-action=ignore \
		--target $(PACKAGES) -r $(SCIENCE)/packages.txt
	$(PIP) download --no-deps --require-hashes --no-binary=mpi4py -d $(PACKAGES)/sources \
		-r $(SCIENCE)/sources.txt
	tar -xf $(PACKAGES)/sources/mpi4py-*.tar.gz -C $(PACKAGES)/mpi4py-source --strip-components=1
	touch $@

release:
	$(CARGO) build --release --workspace
