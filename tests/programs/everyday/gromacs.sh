# Water, simulated, killed and continued; run in an empty directory. Prints the last coordinates.
export GMX_MAXBACKUP=-1 OMP_NUM_THREADS=1
printf '#include "oplsaa.ff/%s.itp"\n' forcefield spce > topol.top
printf '[ system ]\nwater\n[ molecules ]\nSOL 216\n' >> topol.top
cat > grompp.mdp <<'END'
integrator = md
nsteps = 4000
nstxout = 500
nstenergy = 100
nstxout-compressed = 100
cutoff-scheme = Verlet
rlist = 0.8
rvdw = 0.8
rcoulomb = 0.8
tcoupl = v-rescale
tc-grps = System
tau-t = 0.1
ref-t = 300
gen-vel = yes
gen-seed = 7
ld-seed = 7
END
cp /usr/share/gromacs/top/spc216.gro conf.gro
gmx grompp -quiet -maxwarn 9 > log 2>&1 || exit 1
gmx mdrun -quiet -nt 1 -reprod -cpt 0.001 -s topol.tpr -deffnm md > log 2>&1 & job=$!
if [ "$1" = kill ]; then
    for i in $(seq 1200); do [ -e md.cpt ] && break; sleep 0.05; done
    kill -9 $job; wait $job 2> /dev/null
    gmx mdrun -quiet -nt 1 -reprod -noappend -s topol.tpr -cpi md.cpt -deffnm md > log 2>&1 || cat log
else
    wait $job
fi
cat md*.gro
