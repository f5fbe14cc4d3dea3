# The demo, with torch for CPUs:  docker build -t collapse . && docker run --rm -v "$PWD/demo:/demo" collapse
FROM python:3.11-slim
WORKDIR /collapse
COPY . .
RUN pip install --no-cache-dir --extra-index-url https://download.pytorch.org/whl/cpu -c constraints.txt '.[all]'
CMD ["collapse", "demo", "--output", "/demo"]
