# A virtual environment, and pip of a local package; run in an empty directory.
export PIP_NO_INDEX=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
/usr/bin/python3 -m venv v || exit 1
v/bin/python -c 'import sys; print(sys.prefix != sys.base_prefix)'
mkdir pk; echo 'def main(): print("hello from venv")' > pk/hello.py
cat > pk/setup.py <<'END'
from setuptools import setup
setup(name='hello', version='1.0', py_modules=['hello'],
      entry_points={'console_scripts': ['hi=hello:main']})
END
v/bin/pip install -q --no-build-isolation ./pk > pip.log 2>&1 || cat pip.log
v/bin/hi; v/bin/pip list 2> /dev/null | grep hello
. v/bin/activate; hi; python -c 'import hello; print(hello.__name__)'; pip uninstall -qy hello; ls v/bin
rm -r v pk pip.log
