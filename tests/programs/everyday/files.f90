! What Fortran programs do with files: formatted, unformatted, direct, stream and namelist; run in
! an empty directory.
program files
  implicit none
  integer :: i, n, u, ios, a = 1
  integer(8) :: pos
  real(8) :: x(100), y(100)
  real :: b = 2.5
  character(80) :: line
  character(10) :: c = 'abc'
  logical :: there
  namelist /settings/ a, b, c
  x = [(i * 1.5d0, i = 1, 100)]

  open (10, file='formatted', status='replace')
  do i = 1, 100
    write (10, '(i5,f10.3)') i, x(i)
  end do
  close (10)
  open (10, file='formatted', status='old', action='read')
  n = 0
  do
    read (10, *, iostat=ios) i, y(1)
    if (ios /= 0) exit
    n = n + 1
  end do
  rewind (10)
  read (10, '(a)') line
  backspace (10)
  read (10, '(a)') line
  print *, n, i, trim(line)
  close (10)

  open (11, file='unformatted', form='unformatted')
  write (11) x
  write (11) 1, 2, 3
  rewind (11)
  read (11) y
  read (11) i
  backspace (11)
  read (11) i, n
  print *, sum(y), i, n
  close (11)

  open (12, file='direct', access='direct', recl=80, form='unformatted')
  do i = 10, 1, -1
    write (12, rec=i) x(i:i + 9)
  end do
  read (12, rec=5) y(1:10)
  inquire (12, recl=n)
  print *, y(1), n
  close (12)
  open (newunit=u, file='direct.txt', access='direct', recl=20, form='formatted')
  write (u, '(i20)', rec=3) 3
  read (u, '(i20)', rec=3) i
  print *, i
  close (u)

  open (13, file='namelist')
  write (13, nml=settings)
  rewind (13)
  a = 0
  read (13, nml=settings)
  print *, a, b, c
  close (13)

  open (14, file='stream', access='stream', form='unformatted')
  write (14) 1, 2
  inquire (14, pos=pos)
  write (14, pos=100) 7
  read (14, pos=100) i
  print *, pos, i
  close (14)

  do i = 1, 2
    open (15, file='appended', position='append')
    write (15, *) i
    endfile (15)
    close (15)
  end do
  inquire (file='appended', exist=there, size=n)
  print *, there, n
  open (16, status='scratch')
  write (16, *) 'scratch'
  rewind (16)
  read (16, '(a)') line
  print *, trim(line)
  close (16)
  open (17, file='new', status='new')
  close (17)
  open (17, file='new', status='new', iostat=ios)
  print *, ios /= 0
  open (17, file='new')
  close (17, status='delete')
  inquire (file='new', exist=there)
  print *, there
  open (18, file='asynchronous', asynchronous='yes')
  write (18, *, asynchronous='yes') 5
  wait (18)
  flush (18)
  close (18)
  call rename('asynchronous', 'renamed')
end program files
