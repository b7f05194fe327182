//! What LAMMPS is given to do where it runs through Terral: its own example of a melt.

/// Atoms in a box of `cells` each way, which move; their places are written every ten steps. What
/// else is written, and how long it runs, follows.
pub fn input(cells: u32) -> String {
    format!(
        "units lj
atom_style atomic
lattice fcc 0.8442
region box block 0 {cells} 0 {cells} 0 {cells}
create_box 1 box
create_atoms 1 box
mass 1 1.0
velocity all create 3.0 87287
pair_style lj/cut 2.5
pair_coeff 1 1 1.0 1.0 2.5
neighbor 0.3 bin
neigh_modify every 20 delay 0 check no
fix 1 all nve
dump 1 all custom 10 dump.melt id type x y z vx vy vz
restart 50 restart.*
"
    )
}
